"""What a word of a search means by its form alone, or by the names of keys and members."""

import ipaddress
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final, get_args

from analytics.model.columns import FilterParameter
from analytics.model.events import Decision
from analytics.model.filters import InvalidQuery, literal
from analytics.model.schema import FILTER_PARAMETERS
from service.audit.actor_names import ActorNames
from service.audit.readings import VERSION, Reading
from service.ci.providers import SUBJECTS, page_of, repository_subjects, subjects_at
from service.core.settings import IdentityProviderName

PARAMETERS: Final = {parameter.name: parameter for parameter in FILTER_PARAMETERS}
PEOPLE_MAX: Final = 20
"""How many keys and members a part of a name may mean."""

_QUOTED_MAX: Final = 100
_PART_MIN: Final = 3
_SCANS_MAX: Final = 20
"""How many texts of one search are compared with each name: 10,000 take 3 ms."""

_DECISIONS: Final = {decision.casefold(): decision for decision in Decision}
_MEMBER_ID: Final = "mem_"
_OTHER_ID: Final = re.compile(r"(?:exp|inst|itok|org|pexc|proj|search|sess|team)_[a-z0-9]{16}")
_SECRET: Final = re.compile(r"csi?_\S{16,}|eyJ[\w-]{8,}\.\S*")
_ACTORS: Final = "|".join((*get_args(IdentityProviderName), "system"))
_SUBJECTS: Final = "|".join(re.escape(subjects.prefix) for subjects in SUBJECTS)
_VERSION: Final = r"[0-9]+(?:\.[0-9]+)+(?:[-.+]?[A-Za-z][\w.+-]*)?"
_FORMS: Final = tuple(
    (re.compile(pattern, re.ASCII), names)
    for pattern, names in (
        (r"(obind_.*)", ("oidc_binding_id", "subject")),
        (r"(req_.*)", ("request_id",)),
        (r"(key_.*)", ("actor", "subject")),
        (rf"((?:{_SUBJECTS}).*)", ("subject",)),
        (rf"((?:{_ACTORS}):.*)", ("actor",)),
        (r"(?:sha256:)?([0-9A-Fa-f]{64})", ("file_sha256",)),
        (r"([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})", ("token_id", "run_id")),
        (r"([0-9]{6,})", ("run_id", "repository_id")),
        (rf"v?({_VERSION})", (VERSION,)),
    )
)
"""The texts that only values of these filters look like."""

_OTHER_TEXTS: Final = (
    (_OTHER_ID, "no filter takes ids such as {text}"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T\S*)?"), "write since:{text} or until:{text}"),
    (re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}"), "no filter takes a range of addresses"),
    (
        re.compile(r"(?:https?://)?(?:[\w-]+\.)?circleci\.com/(?!.*[0-9a-f]{8}-)\S*"),
        "rows name the workflows of CircleCI, not its projects or numbers: open the workflow, and"
        " search for its address",
    ),
)
"""What looks like a name or an address that is searched for, and is no filter."""

_MAIL: Final = re.compile(r"[^@\s/]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}")

_SUBJECT_OF_REPOSITORY: Final = re.compile(r"repo:[^:/]+/[^:/*]+")
_REPOSITORY: Final = re.compile(
    r"(?P<path>[\w.-]+(?:/[\w.-]+)+)(?:@(?:refs/(?:heads|tags)/)?(?P<ref>[\w./-]+)|#[0-9]+|/)?"
)
_ADDRESS: Final = re.compile(r"(?:(?:https?|ssh|git)(?:\+ssh)?://)?(?P<rest>[^\s?#]+)\S*")


def filter_value(parameter: FilterParameter, text: str, *, is_quoted: bool) -> str:
    """The value for exactly `text`; an asterisk at the end of a bare word means any ending."""
    is_prefix = parameter.takes_prefix and text.endswith("*") and not is_quoted
    core = text.removesuffix("*") if is_prefix else text
    if not parameter.can_match(core, is_prefix=is_prefix):
        core = parameter.with_matching_case(core, is_prefix=is_prefix) or core
    return f"{literal(core)}*" if is_prefix else literal(core)


def readings_by_form(text: str, *, is_quoted: bool = False) -> list[Reading]:
    """What a word means that only one kind of value looks like. Raises InvalidQuery."""
    return [
        Reading({name: (filter_value(PARAMETERS[name], value, is_quoted=is_quoted),)})
        for name, value in _by_form(text)
    ]


def _by_form(text: str) -> Iterator[tuple[str, str]]:
    if text.casefold() in _DECISIONS:
        yield "decision", _DECISIONS[text.casefold()]
    elif _SECRET.fullmatch(text):
        raise InvalidQuery(
            "this looks like a secret: search for the name or the id of its key", field="q"
        )
    elif refusal := _refusal(text):
        raise refusal
    elif _is_address(text):
        yield "source_ip", text
    elif _SUBJECT_OF_REPOSITORY.fullmatch(text):
        yield "subject", f"{text}:*"
    else:
        for pattern, names in _FORMS:
            if match := pattern.fullmatch(text):
                yield from ((name, match[1]) for name in names)
                return


def _refusal(text: str) -> InvalidQuery | None:
    for pattern, refusal in _OTHER_TEXTS:
        if pattern.fullmatch(text):
            return InvalidQuery(refusal.format(text=text), field="q")
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def repositories(text: str) -> list[Reading]:
    """The jobs of a repository or a run, by its address or its name as rows show it."""
    address = _ADDRESS.fullmatch(text)
    beginning, run_id = page_of(address["rest"]) if address else (None, None)
    if beginning or run_id:
        jobs = {"subject": (f"{literal(beginning)}*",)} if beginning else {}
        if run_id is None:
            return [Reading(jobs)]
        run = {"run_id": (run_id,)}
        return [Reading(run | jobs), Reading(run)]
    match = _REPOSITORY.fullmatch(text)
    if match is None:
        return []
    return [
        Reading(
            {
                "subject": tuple(
                    [f"{literal(each)}*" for each in repository_subjects(path)]
                    if match["ref"] is None
                    else [literal(each) for each in subjects_at(path, match["ref"])]
                )
            }
        )
        for path in dict.fromkeys((match["path"], match["path"].lower()))
    ]


class People:
    """The keys and members of an organisation, former ones too, by parts of their names.

    There may be ten thousand, and a search has a hundred words: most are in no name, which one
    look at all names together tells.
    """

    def __init__(self, actors: ActorNames) -> None:
        self.actors = actors
        self._scans = 0
        self._joined = "\n".join(["", *actors])
        self._ids = "\n".join(["", *(each for ids in actors.values() for each in ids), ""])

    def readings(self, text: str) -> list[Reading]:
        """Those that a part of a name or of an address means; none if it means too many.

        Raises InvalidQuery for an address that is in none: it is no package either.
        """
        found = self._found(text)
        if not found and _MAIL.fullmatch(text):
            raise InvalidQuery(f"no member has the address {text[:_QUOTED_MAX]}", field="q")
        return found

    def _found(self, text: str) -> list[Reading]:
        folded = text.casefold().removeprefix("@")
        if folded.startswith(_MEMBER_ID):
            return self._member(folded)
        parts = folded.split()
        if not parts or min(map(len, parts)) < _PART_MIN:
            return []
        if self._scans >= _SCANS_MAX or not all(part in self._joined for part in parts):
            return []
        self._scans += 1
        named = [ids for name, ids in self.actors.items() if _has_parts(name, parts)]
        ids = sorted(each for each in chain(*named))
        if not 1 <= len(ids) <= PEOPLE_MAX:
            return []
        return [Reading({"actor": tuple(map(literal, ids))})]

    def has_whole_name(self, text: str) -> bool:
        """Whether `text` is all of an address before its `@`, or a member's id."""
        if text.startswith(_MEMBER_ID):
            return True
        folded = ".".join(text.casefold().removeprefix("@").split())
        return f"\n{folded}@" in self._joined

    def _member(self, member_id: str) -> list[Reading]:
        """A member as the actor of rows, or else as what they are about."""
        about = Reading({"subject": (literal(member_id),)})
        end = self._ids.find(f":{member_id}\n")
        if end < 0:
            return [about]
        actor = self._ids[self._ids.rindex("\n", 0, end) + 1 : end] + f":{member_id}"
        return [Reading({"actor": (literal(actor),)}), about]


def _has_parts(name: str, parts: list[str]) -> bool:
    local, _, domain = name.partition("@")
    return all(part in name if "@" in part else part in local or part == domain for part in parts)
