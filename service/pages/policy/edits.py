"""Changes to a policy by the forms of its page: from the typed texts to the new policy."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct, structs

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid
from service.packages.policy.document import DAYS_MAX, entry_models, parse_policy, to_json
from service.packages.policy.model import InstallPolicy
from service.pages.page import Form
from service.web.request_parsing import parse_object

FAULTS_MAX: Final = 10
"""Errors of a whole document that are shown at once."""

ANYWHERE: Final = ""
"""The name of errors that no field of the form is about."""

MODE: Final = "mode"
TRUST: Final = "trust"
COOLDOWN: Final = "cooldown"
REMOVE: Final = "remove"
DOCUMENT: Final = "document"
_ADD: Final = "add_"

_ENTRIES: Final = entry_models()
_ENTRY: Final = re.compile(rf"(?P<part>{'|'.join(_ENTRIES)})\[(?P<number>\d+)\]")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    MODE: ("mode",),
    TRUST: ("action", "ignore_after_days", "exempt"),
    COOLDOWN: ("min_age_days", "exempt", "cure"),
    **{f"{_ADD}{part}": entry.__struct_fields__ for part, entry in _ENTRIES.items()},
    REMOVE: ("part", "entry"),
    DOCUMENT: ("document",),
}
"""The kinds of changes, and the fields of the form of each."""

_TAKEN: Final = " is the id of "
_ANY: Final = "x"
"""A stand-in for any required text."""

PolicyJson = dict[str, Any]

_NO_DAYS: Final = f"must be a whole number of days from 1 to {DAYS_MAX}"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: its kind, and what was typed into the fields of its form."""

    kind: str
    fields: Mapping[str, str] = field(default_factory=dict)


class EditRefused(Exception):
    """The change cannot be made; `faults` are all its errors, by the form's field or ANYWHERE."""

    def __init__(self, faults: Mapping[str, list[str]]) -> None:
        super().__init__("; ".join(text for texts in faults.values() for text in texts))
        self.faults = faults


def read_edit(form: Form) -> Edit:
    """The change that `form` spells. Raises Invalid if it is of no known kind."""
    kind = form.get("kind", "")
    if kind not in FIELDS:
        raise Invalid(f"kind must be one of {', '.join(FIELDS)}", field="kind")
    return Edit(kind, {name: form.get(name, "") for name in FIELDS[kind]})


def propose(edit: Edit, policy: InstallPolicy) -> InstallPolicy:
    """`policy` with the change. Raises EditRefused."""
    if edit.kind == MODE:
        return _parsed({**to_json(policy), "mode": edit.fields["mode"]}, "mode")
    if edit.kind == TRUST:
        return _with_trust(edit.fields, to_json(policy))
    if edit.kind == COOLDOWN:
        return _with_cooldown(edit.fields, to_json(policy))
    if edit.kind == REMOVE:
        return _without(edit.fields["part"], edit.fields["entry"], policy)
    if edit.kind == DOCUMENT:
        return _whole(edit.fields["document"])
    return _with_entry(edit.kind.removeprefix(_ADD), edit.fields, to_json(policy))


def _parsed(document: PolicyJson, name: str) -> InstallPolicy:
    try:
        return parse_policy(document)
    except Invalid as fault:
        raise EditRefused({name: [_bare(fault)]}) from fault


def _with_cooldown(fields: Mapping[str, str], document: PolicyJson) -> InstallPolicy:
    faults: dict[str, list[str]] = {}
    days_text = fields["min_age_days"].strip()
    days = _days(days_text)
    if days_text and not days:
        faults["min_age_days"] = [f"{_NO_DAYS}, or empty for no cooldown"]
    exempt, unread = _exempt(fields["exempt"], COOLDOWN)
    if unread:
        faults["exempt"] = unread
    elif (exempt or fields.get("cure")) and not days_text:
        faults["min_age_days"] = ["is empty, so there is no cooldown for packages to be exempt of"]
    if faults:
        raise EditRefused(faults)
    cooldown: PolicyJson = {"min_age_days": days, "exempt": exempt}
    cooldown |= {"cure": True} if fields.get("cure") else {}
    document |= {"cooldown": cooldown if days_text else None}
    return _parsed(document, "exempt")


def _with_trust(fields: Mapping[str, str], document: PolicyJson) -> InstallPolicy:
    if not fields["action"]:
        return _parsed({**document, "trust": None}, ANYWHERE)
    days_text = fields["ignore_after_days"].strip()
    exempt, unread = _exempt(fields["exempt"], TRUST)
    faults = {"exempt": unread} if unread else {}
    if days_text and not _days(days_text):
        faults["ignore_after_days"] = [f"{_NO_DAYS}, or empty"]
    if faults:
        raise EditRefused(faults)
    days = _days(days_text) or None
    trust = {"action": fields["action"], "exempt": exempt, "ignore_after_days": days}
    return _parsed({**document, "trust": trust}, "exempt")


def _days(text: str) -> int:
    """The number of days in a field; 0 for any other text."""
    days = int(text) if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) else 0
    return days if days <= DAYS_MAX else 0


def _exempt(text: str, part: str) -> tuple[list[PolicyJson], list[str]]:
    """The entries of the lines, and what is wrong with the others."""
    entries, faults = [], []
    others = {"min_age_days": 1} if part == COOLDOWN else {}
    for line in filter(None, map(str.strip, text.splitlines())):
        spec, _, versions = line.partition(" ") if part == TRUST else (line, "", "")
        ecosystem, _, package = spec.partition(":")
        entry: PolicyJson = {"ecosystem": ecosystem.strip(), "package": package.strip()}
        entry |= {"versions": versions} if versions else {}
        if entry["ecosystem"] not in set(Ecosystem):
            faults.append(
                f"{line}: begin with {' or '.join(f'{ecosystem}:' for ecosystem in Ecosystem)}"
            )
            continue
        try:
            parse_policy({part: {**others, "exempt": [entry]}})
        except Invalid as fault:
            faults.append(f"{line}: {_bare(fault)}")
        entries.append(entry)
    return entries, faults[:FAULTS_MAX]


def _without(part: str, entry: str, policy: InstallPolicy) -> InstallPolicy:
    document = to_json(policy)
    names = [each.name for each in policy.entries.get(part, ())]
    if entry not in names:
        raise EditRefused({ANYWHERE: [f"there is no entry {entry!r}: it may be removed by now"]})
    del document[part][names.index(entry)]
    return parse_policy(document)


def _with_entry(part: str, fields: Mapping[str, str], document: PolicyJson) -> InstallPolicy:
    """The document with a new entry, whose fields are judged one after the other."""
    typed, valid = _entry(fields), _valid_entry(_ENTRIES[part])
    faults = {
        name: ["must not be empty"]
        for name, text in valid.items()
        if text == _ANY and not typed[name]
    }
    entry = typed | {name: valid[name] for name in faults}
    number = len(document[part])
    while True:
        try:
            policy = parse_policy({**document, part: [*document[part], entry]})
        except Invalid as fault:
            prefix, _, path = (fault.field or "").partition("].")
            name = re.split(r"\W", path)[0]
            is_own = prefix == f"{part}[{number}" and name in fields
            if not is_own or name in faults:
                raise EditRefused(faults | {ANYWHERE: [_bare(fault)]}) from fault
            faults[name] = ["is the name of another rule" if _TAKEN in fault.text else _bare(fault)]
            entry = entry | {name: valid[name]}
        else:
            break
    if faults:
        raise EditRefused(faults)
    return policy


def _valid_entry(model: type[Struct]) -> PolicyJson:
    """Stand-ins for faulty fields, so that the errors of the other fields are found, too."""
    optional = {each.name: None for each in structs.fields(model) if not each.required}
    texts = {each.name: _ANY for each in structs.fields(model) if each.required}
    return texts | optional | {"ecosystem": Ecosystem.PYPI.value, "versions": []}


def _entry(fields: Mapping[str, str]) -> PolicyJson:
    """The entry in the fields, with one range per line; empty fields are left out."""
    entry: PolicyJson = {name: text.strip() for name, text in fields.items()}
    if "versions" in entry:
        lines = (line.strip() for line in entry["versions"].splitlines())
        entry["versions"] = [line for line in lines if line]
        entry |= {name: entry[name] or None for name in ("id", "reason")}
    if "withdrawn" in entry:
        entry["withdrawn"] = entry["withdrawn"] == "true"
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
    numbers = {part: list(range(len(_list(document, part)))) for part in _ENTRIES}
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


def _list(document: PolicyJson, part: str) -> list[Any]:
    value = document.get(part)
    return value if isinstance(value, list) else []


def _drop(path: str, document: PolicyJson, numbers: Mapping[str, list[int]]) -> bool:
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
