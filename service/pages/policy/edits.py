"""Changes to a policy by the forms of its page: from the typed texts to the new policy."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from service.core.errors import Invalid
from service.packages.ecosystems import Ecosystem
from service.packages.policy.document import MIN_AGE_DAYS_MAX
from service.packages.policy.model import FirstParty, InstallPolicy, PackagePattern
from service.packages.policy.parsing import parse_policy, to_json
from service.pages.form_auth import Form
from service.web.request_parsing import parse_object

FAULTS_MAX: Final = 10
"""Errors of a whole document that are shown at once."""

ANYWHERE: Final = ""
"""The name of errors that no field of the form is about."""

_NEVER_BLANK: Final = ("package", "registry")
_PARTS: Final = ("first_party", "deny", "allow")
_ENTRY: Final = re.compile(rf"(?P<part>{'|'.join(_PARTS)})\[(?P<number>\d+)\]")


class EditKind(StrEnum):
    """What a form changes."""

    MODE = "mode"
    COOLDOWN = "cooldown"
    ADD_FIRST_PARTY = "add_first_party"
    ADD_DENY = "add_deny"
    ADD_ALLOW = "add_allow"
    REMOVE = "remove"
    DOCUMENT = "document"


_RULE: Final = ("ecosystem", "package", "versions", "id", "reason")
FIELDS: Final[dict[EditKind, tuple[str, ...]]] = {
    EditKind.MODE: ("mode",),
    EditKind.COOLDOWN: ("min_age_days", "exempt"),
    EditKind.ADD_FIRST_PARTY: ("ecosystem", "package", "registry"),
    EditKind.ADD_DENY: _RULE,
    EditKind.ADD_ALLOW: _RULE,
    EditKind.REMOVE: ("part", "entry"),
    EditKind.DOCUMENT: ("document",),
}
_TAKEN: Final = " is the id of "
_ADDED_TO: Final = {
    EditKind.ADD_FIRST_PARTY: "first_party",
    EditKind.ADD_DENY: "deny",
    EditKind.ADD_ALLOW: "allow",
}
_VALID: Final[dict[str, Any]] = {
    "ecosystem": Ecosystem.PYPI.value,
    "package": "x",
    "registry": "x",
    "versions": [],
    "id": None,
    "reason": None,
}
"""Stand-ins for faulty fields, so that the errors of the other fields are found, too."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: its kind, and what was typed into the fields of its form."""

    kind: EditKind
    given: Mapping[str, str] = field(default_factory=dict)


class EditRefused(Exception):
    """The change cannot be made; `faults` are all its errors, by the form's field or ANYWHERE."""

    def __init__(self, faults: Mapping[str, list[str]]) -> None:
        super().__init__("; ".join(text for texts in faults.values() for text in texts))
        self.faults = faults


def read_edit(form: Form) -> Edit:
    """The change that `form` spells. Raises Invalid if it is of no known kind."""
    if form.get("kind") not in set(EditKind):
        raise Invalid(f"kind must be one of {', '.join(EditKind)}", field="kind")
    kind = EditKind(form["kind"])
    return Edit(kind, {name: form.get(name, "") for name in FIELDS[kind]})


def propose(edit: Edit, policy: InstallPolicy) -> InstallPolicy:
    """`policy` with the change. Raises EditRefused."""
    match edit.kind:
        case EditKind.MODE:
            return _parsed({**to_json(policy), "mode": edit.given["mode"]}, "mode")
        case EditKind.COOLDOWN:
            return _with_cooldown(edit.given, to_json(policy))
        case EditKind.REMOVE:
            return _without(edit.given["part"], edit.given["entry"], policy)
        case EditKind.DOCUMENT:
            return _whole(edit.given["document"])
        case _:
            return _with_entry(_ADDED_TO[edit.kind], edit.given, to_json(policy))


def entry_of(entry: FirstParty) -> str:
    """How a form names a first-party entry."""
    return f"{pattern_of(entry.packages)} from {entry.registry}"


def pattern_of(packages: PackagePattern) -> str:
    """Packages as one word: `npm:@acme/*`."""
    return f"{packages.ecosystem}:{packages.pattern.text}"


def _parsed(document: Document, name: str) -> InstallPolicy:
    try:
        return parse_policy(document)
    except Invalid as fault:
        raise EditRefused({name: [_bare(fault)]}) from fault


def _with_cooldown(given: Mapping[str, str], document: Document) -> InstallPolicy:
    faults: dict[str, list[str]] = {}
    days_text = given["min_age_days"].strip()
    days = int(days_text) if re.fullmatch(r"[0-9]{1,5}", days_text, re.ASCII) else 0
    if days_text and not 1 <= days <= MIN_AGE_DAYS_MAX:
        faults["min_age_days"] = [
            f"must be a whole number of days from 1 to {MIN_AGE_DAYS_MAX}, or empty for no cooldown"
        ]
    exempt, unread = _exempt(given["exempt"])
    if unread:
        faults["exempt"] = unread
    elif exempt and not days_text:
        faults["min_age_days"] = ["is empty, so there is no cooldown for packages to be exempt of"]
    if faults:
        raise EditRefused(faults)
    cooldown = {"min_age_days": days, "exempt": exempt} if days_text else None
    return _parsed({**document, "cooldown": cooldown}, "exempt")


def _exempt(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """The entries of the lines, and what is wrong with the others."""
    entries, faults = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        ecosystem, _, package = line.partition(":")
        entry = {"ecosystem": ecosystem.strip(), "package": package.strip()}
        if entry["ecosystem"] not in set(Ecosystem):
            faults.append(
                f"{line}: begin with {' or '.join(f'{ecosystem}:' for ecosystem in Ecosystem)}"
            )
            continue
        try:
            parse_policy({"cooldown": {"min_age_days": 1, "exempt": [entry]}})
        except Invalid as fault:
            faults.append(f"{line}: {_bare(fault)}")
        entries.append(entry)
    return entries, faults[:FAULTS_MAX]


def _without(part: str, entry: str, policy: InstallPolicy) -> InstallPolicy:
    document = to_json(policy)
    names = {
        "first_party": [entry_of(pattern) for pattern in policy.first_party],
        "deny": [rule.rule_id for rule in policy.deny],
        "allow": [rule.rule_id for rule in policy.allow],
    }
    if entry not in names.get(part, ()):
        raise EditRefused({ANYWHERE: [f"there is no entry {entry!r}: it may be removed by now"]})
    del document[part][names[part].index(entry)]
    return parse_policy(document)


def _with_entry(part: str, given: Mapping[str, str], document: Document) -> InstallPolicy:
    """The document with a new entry, whose fields are judged one after the other."""
    typed = _entry(given)
    faults = {
        name: ["must not be empty"] for name in _NEVER_BLANK if name in given and not typed[name]
    }
    entry = typed | {name: _VALID[name] for name in faults}
    number = len(document[part])
    while True:
        try:
            policy = parse_policy({**document, part: [*document[part], entry]})
        except Invalid as fault:
            prefix, _, path = (fault.field or "").partition("].")
            name = re.split(r"\W", path)[0]
            is_own = prefix == f"{part}[{number}" and name in given
            if not is_own or name in faults:
                raise EditRefused(faults | {ANYWHERE: [_bare(fault)]}) from fault
            faults[name] = ["is the name of another rule" if _TAKEN in fault.text else _bare(fault)]
            entry = entry | {name: _VALID[name]}
        else:
            break
    if faults:
        raise EditRefused(faults)
    return policy


def _entry(given: Mapping[str, str]) -> Document:
    """The entry in the fields, with one range per line; empty fields are left out."""
    entry: Document = {name: text.strip() for name, text in given.items()}
    if "versions" in entry:
        lines = (line.strip() for line in entry["versions"].splitlines())
        entry["versions"] = [line for line in lines if line]
        entry |= {name: entry[name] or None for name in ("id", "reason")}
    return entry


def _whole(text: str) -> InstallPolicy:
    """The policy of a whole document. Raises EditRefused with the errors of all its entries."""
    try:
        document = parse_object(text.encode())
    except Invalid as fault:
        raise EditRefused(
            {"document": [fault.text.replace("request body", "the document")]}
        ) from fault
    except UnicodeEncodeError as error:
        raise EditRefused({"document": ["the document must be Unicode text"]}) from error
    faults: list[str] = []
    remaining = deepcopy(document)
    numbers = {part: list(range(len(_list(document, part)))) for part in _PARTS}
    while len(faults) < FAULTS_MAX:
        try:
            policy = parse_policy(remaining)
        except Invalid as fault:
            faults.append(_renumbered(fault.text, numbers))
            if not _drop(fault.field or "", remaining, numbers):
                break
        else:
            if not faults:
                return policy
            break
    raise EditRefused({"document": faults})


def _list(document: Document, part: str) -> list[Any]:
    value = document.get(part)
    return value if isinstance(value, list) else []


def _drop(path: str, document: Document, numbers: Mapping[str, list[int]]) -> bool:
    """Remove the entry or part that an error at `path` is about; False if it is none of them."""
    match = _ENTRY.match(path)
    if match is not None and numbers[match["part"]]:
        del document[match["part"]][int(match["number"])]
        del numbers[match["part"]][int(match["number"])]
        return True
    part = re.split(r"\W", path)[0]
    return document.pop(part, None) is not None


def _renumbered(text: str, numbers: Mapping[str, list[int]]) -> str:
    """`text` with entries by their number in the document as it was typed."""

    def original(match: re.Match[str]) -> str:
        known, number = numbers[match["part"]], int(match["number"])
        return f"{match['part']}[{known[number] if number < len(known) else number}]"

    return _ENTRY.sub(original, text)


def _bare(fault: Invalid) -> str:
    """The error without the path to its field, beside which it is shown."""
    return fault.text.removeprefix(f"{fault.field}: ")
