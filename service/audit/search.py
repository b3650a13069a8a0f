"""The search box: text as people type it, read as filters, in `q` of a request.

A search is words: `event-stream@3.3.6`, `storefront-ci`, `run:14077220290`, `-decision:blocked`.
Each word names its field or is recognised by its form; what a page shows can be typed back.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Final, get_args

from analytics.model.columns import FilterParameter
from analytics.model.ecosystems import Ecosystem
from analytics.model.events import Decision
from analytics.model.filters import BOUND_PARAMETERS, InvalidQuery, literal, only
from analytics.model.labels import EVENT_LABELS
from analytics.model.schema import FILTER_PARAMETERS, parse_audit_id
from service.audit.actor_names import ActorNames, actors_by_name
from service.ci.providers import SUBJECTS, job_subjects
from service.core.durations import parse_duration
from service.core.settings import IdentityProviderName
from service.store.store import Store
from service.store.tables import Organisation

WINDOW: Final = "last"
"""The parameter of pages and saved searches that names a window."""


def window_length(text: str) -> timedelta | None:
    """The length of a window such as `24h`; None if `text` is no such length."""
    return None if text.startswith("0") else parse_duration(text, "mhdw", digits_max=5)


def check_window(text: str | None) -> None:
    """Raise InvalidQuery if `text` is given and is no length of time."""
    if text is not None and window_length(text) is None:
        raise InvalidQuery(
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
            field=WINDOW,
        )


SEARCH_CHARS_MAX: Final = 4 * 1024
TIME_FIELDS: Final = ("last", *BOUND_PARAMETERS)

_PARAMETERS: Final = {parameter.name: parameter for parameter in FILTER_PARAMETERS}
_FIELDS: Final = {
    name: parameter
    for parameter in FILTER_PARAMETERS
    for name in (parameter.name, *parameter.aliases)
}
_EVENTS: Final = {label.casefold(): event for event, label in EVENT_LABELS.items()}
_DECISIONS: Final = {decision.casefold(): decision for decision in Decision}
_ID_FIELDS: Final = {"obind_": "oidc_binding_id", "req_": "request_id", "key_": "actor"}
_ACTOR_PREFIXES: Final = tuple(f"{name}:" for name in (*get_args(IdentityProviderName), "system"))
_SUBJECT_PREFIXES: Final = tuple(subjects.prefix for subjects in SUBJECTS)
_RUN_ID: Final = re.compile(r"[0-9]{6,}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_REPOSITORY: Final = re.compile(r"repo:[^:/]+/[^:/*]+")
_WORD: Final = re.compile(r'\s*(?P<raw>-?(?:[A-Za-z_]+:)?(?:"(?P<quoted>[^"]*)"|[^\s"]\S*))')
_PHRASE_WORDS_MAX: Final = 8

Filter = tuple[str, str]
"""A query parameter and its value, in the syntax of `parse_query`."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search asks for: one row by its id, or the rows of these query parameters."""

    parameters: dict[str, list[str]]
    row_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Word:
    """One word: `text` without its sign, its field and its quotation marks."""

    text: str
    field: str | None
    is_negated: bool
    is_quoted: bool


def parse_search(text: str, actors: ActorNames) -> Search:
    """The filters that `text` asks for. Raises InvalidQuery, with the field `q`."""
    if len(text) > SEARCH_CHARS_MAX:
        raise _invalid(f"the search must be at most {SEARCH_CHARS_MAX} characters")
    raw_words = list(_split(text))
    if len(raw_words) == 1 and parse_audit_id(raw_words[0]) is not None:
        return Search({}, row_id=raw_words[0])
    parameters: dict[str, list[str]] = {}
    for name, value in _filters(raw_words, actors):
        values = parameters.setdefault(name, [])
        if value not in values:
            values.append(value)
    for name in TIME_FIELDS:
        if len(parameters.get(name, ())) > 1:
            raise _invalid(f"{name} may be given only once")
    return Search(parameters)


def _split(text: str) -> Iterator[str]:
    """The words of `text` as they were typed: quotation marks keep spaces in a word."""
    text = text.strip()
    position = 0
    while position < len(text):
        word = _WORD.match(text, position)
        if word is None:
            raise _invalid('a quotation mark is not closed: write "two words"')
        yield word["raw"]
        position = word.end()


def _filters(raw_words: Sequence[str], actors: ActorNames) -> Iterator[Filter]:
    position = 0
    while position < len(raw_words):
        length = _phrase_length(raw_words[position:], actors)
        if length:
            phrase = " ".join(raw_words[position : position + length])
            is_negated = phrase.startswith("-")
            yield from _named(phrase.removeprefix("-"), is_negated, actors)
            position += length
        else:
            yield from _meaning(_word(raw_words[position]), actors)
            position += 1


def _phrase_length(raw_words: Sequence[str], actors: ActorNames) -> int:
    """How many of the words, from the first on, are one shown name; 0 if none."""
    for length in range(min(_PHRASE_WORDS_MAX, len(raw_words)), 0, -1):
        name = " ".join(raw_words[:length]).removeprefix("-")
        if _folded(name) in _EVENTS or _folded(name) in actors or job_subjects(name):
            return length
    return 0


def _named(name: str, is_negated: bool, actors: ActorNames) -> list[Filter]:
    """The filters for the shown name of an event, actor or CI job; none if it is none of them."""
    folded = _folded(name)
    sign = "!" if is_negated else ""
    if folded in _EVENTS:
        return [("event", f"{sign}{_EVENTS[folded]}")]
    if folded in actors:
        return [("actor", f"{sign}{literal(actor)}") for actor in actors[folded]]
    return [("subject", f"{sign}{literal(subject)}") for subject in job_subjects(name)]


def _word(raw: str) -> _Word:
    is_negated = raw.startswith("-") and len(raw) > 1
    rest = raw.removeprefix("-") if is_negated else raw
    head, colon, tail = rest.partition(":")
    field = head.lower() if colon and _is_field(head.lower(), tail) else None
    text = rest if field is None else tail
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return _Word(text[1:-1] if is_quoted else text, field, is_negated, is_quoted)


def _is_field(name: str, value: str) -> bool:
    """Whether `name:value` is a field and its value: `repo:acme/app` is how subjects begin."""
    if name == "repo":
        return not value or value.strip('"').isdigit()
    return name in _FIELDS or name in TIME_FIELDS


def _meaning(word: _Word, actors: ActorNames) -> list[Filter]:
    if word.field in TIME_FIELDS:
        if word.is_negated or not word.text:
            raise _invalid(f"write {word.field}: and a time, such as {word.field}:2026-01-31")
        return [(str(word.field), word.text)]
    if word.field is not None:
        return _in_field(_FIELDS[word.field], word, actors)
    named = _named(word.text, word.is_negated, actors)
    return named or list(_recognised(word))


def _in_field(parameter: FilterParameter, word: _Word, actors: ActorNames) -> list[Filter]:
    if not word.text:
        raise _invalid(f"write a value after {word.field}:")
    if parameter.name in {"event", "actor", "subject"}:
        named = _named(word.text, word.is_negated, actors)
        if named and named[0][0] == parameter.name:
            return named
    return [_filter(parameter, word, word.text)]


def _recognised(word: _Word) -> Iterator[Filter]:
    """The filters of a word without a field, by its form; any other word is a package."""
    text = word.text
    if not text:
        raise _invalid('"" means nothing: write a word between the quotation marks')
    if text.casefold() in _DECISIONS:
        yield _filter(_PARAMETERS["decision"], word, _DECISIONS[text.casefold()])
    elif text.startswith("pkg:"):
        yield from _package_url(word)
    elif _REPOSITORY.fullmatch(text):
        yield _filter(_PARAMETERS["subject"], word, f"{text}:*")
    elif (name := _field_by_form(text)) is not None:
        yield _filter(_PARAMETERS[name], word, text)
    elif re.match(r"[A-Za-z_]+:", text) and not word.is_quoted:
        raise _unknown_field(text.partition(":")[0])
    else:
        yield from _package(word, text)


def _field_by_form(text: str) -> str | None:
    for prefix, name in _ID_FIELDS.items():
        if text.startswith(prefix):
            return name
    if text.startswith(_SUBJECT_PREFIXES):
        return "subject"
    if text.startswith(_ACTOR_PREFIXES):
        return "actor"
    if _SHA256.fullmatch(text):
        return "file_sha256"
    if _RUN_ID.fullmatch(text):
        return "run_id"
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return None
    return "source_ip"


def _package_url(word: _Word) -> Iterator[Filter]:
    """`pkg:npm/%40scope/name@1.0`, see github.com/package-url/purl-spec."""
    ecosystem, _, rest = word.text.removeprefix("pkg:").partition("/")
    if ecosystem not in set(Ecosystem) or not rest:
        known = ", ".join(f"pkg:{name}/<name>" for name in sorted(Ecosystem))
        raise _invalid(f"a package URL must be one of {known}, with @<version> if wanted")
    if word.is_negated:
        raise _invalid("a package URL cannot be excluded: write -package:<name>")
    yield ("ecosystem", ecosystem)
    yield from _package(word, rest.replace("%40", "@", 1))


def _package(word: _Word, text: str) -> Iterator[Filter]:
    """`name@version`, or a name alone. The first character of a scoped name is an `@`, too."""
    name, at, version = text[1:].rpartition("@")
    if not at or not version:
        yield _filter(_PARAMETERS["package"], word, text)
        return
    if word.is_negated:
        raise _invalid(
            f"{text} cannot be excluded: exclude its version with -version:{version}, or"
            f" the package with -package:{text[0]}{name}"
        )
    yield _filter(_PARAMETERS["package"], word, text[0] + name)
    yield _filter(_PARAMETERS["version"], word, version)


def _filter(parameter: FilterParameter, word: _Word, text: str) -> Filter:
    """The filter for exactly `text`; an asterisk at the end of a bare word means any ending."""
    is_prefix = parameter.takes_prefix and text.endswith("*") and not word.is_quoted
    core = text.removesuffix("*") if is_prefix else text
    if not parameter.can_match(core, is_prefix=is_prefix):
        core = parameter.with_matching_case(core, is_prefix=is_prefix) or core
    value = f"{literal(core)}*" if is_prefix else literal(core)
    return parameter.name, f"!{value}" if word.is_negated else value


def _folded(name: str) -> str:
    """`name` for comparison: keyboards have a straight apostrophe only."""
    return name.strip('"').replace("'", "\N{RIGHT SINGLE QUOTATION MARK}").casefold()


def _unknown_field(name: str) -> InvalidQuery:
    nearest = get_close_matches(name.lower(), [*_FIELDS, *TIME_FIELDS], 1)
    hint = f"did you mean {nearest[0]}:? " if nearest else ""
    fields = ", ".join(sorted({*_FIELDS, *TIME_FIELDS}))
    return _invalid(
        f"unknown field {name[:64]}: {hint}Fields are {fields}. Put the word in quotation marks to"
        " search for a package of this name"
    )


def _invalid(text: str) -> InvalidQuery:
    return InvalidQuery(text, field="q")


SEARCH: Final = "q"


async def search_of(
    store: Store, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> Search | None:
    """What `q` asks for in the log of `org`; None without `q`. Raises InvalidQuery."""
    text = only(parameters, SEARCH)
    if text is None:
        return None
    async with store.read() as session:
        return parse_search(text, await actors_by_name(session, org.id))


async def with_search(
    store: Store, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """`parameters` with the filters of `q` instead of it.

    Raises InvalidQuery, whose text names `q`: beside a form's field it would say so twice.
    """
    if SEARCH not in parameters:
        return {name: list(values) for name, values in parameters.items()}
    only(parameters, SEARCH)  # which names the parameter itself
    try:
        search = await search_of(store, org, parameters)
    except InvalidQuery as error:
        raise InvalidQuery(f"{SEARCH}: {error}", field=SEARCH) from error
    filters = {name: list(values) for name, values in parameters.items() if name != SEARCH}
    if search is None:
        return filters
    if search.row_id is not None:
        raise InvalidQuery(
            f"{SEARCH}: a row is read at …/audit/{search.row_id}, not searched", field=SEARCH
        )
    if "last" in search.parameters:
        raise InvalidQuery(
            f"{SEARCH}: last: is for the page; give the parameter since, which pages of rows can"
            " share",
            field=SEARCH,
        )
    return merged(filters, search)


def merged(filters: Mapping[str, Sequence[str]], search: Search) -> dict[str, list[str]]:
    """`filters` and those of `search`: a time in the search takes the place of the other one."""
    result = {name: list(values) for name, values in filters.items()}
    if search.parameters.keys() & {"last", "since", "until"}:
        for name in ("last", "since", "until"):
            result.pop(name, None)
    for name, values in search.parameters.items():
        known = result.setdefault(name, [])
        known += [value for value in values if value not in known]
    return result
