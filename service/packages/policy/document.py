"""The document that a policy is written in: JSON in the API, TOML in the file of `apply`.

Its form and limits, and its conversion from and to a policy. Each error names the faulty field.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from analytics.model.ecosystems import Ecosystem
from service.core.errors import NOT_STORABLE_TEXT, Invalid
from service.core.text_rules import is_encodable
from service.packages.ecosystem import InvalidPackageName, InvalidRange
from service.packages.names import NAME_MAX, parse_pattern
from service.packages.policy.model import (
    Cooldown,
    FirstParty,
    InstallPolicy,
    PackagePattern,
    PolicyMode,
    ReleaseRule,
    TrustAction,
    TrustRule,
)
from service.packages.versions import VERSION_MAX, parse_range

RULES_MAX: Final = 300
"""Entries in each list of a policy. Not in the schema: a longer one may be refused unread (413)."""
RANGES_MAX: Final = 32
"""Ranges of one rule."""
RULE_ID_MAX: Final = 100
REASON_MAX: Final = 256
REGISTRY_MAX: Final = 200
DAYS_MAX: Final = 3_650
DOCUMENT_BYTES_MAX: Final = 64 * 1024
"""The whole document as compact JSON: what the API accepts as a body by default."""

_PLACE: Final = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

PackageText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_MAX,
        description="A name, or a glob in which `*` stands for any characters.",
    ),
]
RangeText = Annotated[str, Meta(max_length=VERSION_MAX)]


class PackageEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Packages by name."""

    ecosystem: Ecosystem
    package: PackageText


class FirstPartyEntry(PackageEntry, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Packages that an internal registry alone may deliver."""

    registry: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REGISTRY_MAX,
            description="The registry that they come from, as audit rows name it.",
        ),
    ]


class ReleasesEntry(PackageEntry, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Releases by package and version."""

    versions: Annotated[
        RangeText | Annotated[list[RangeText], Meta(max_length=RANGES_MAX)],
        Meta(
            description="Ranges in the ecosystem's own form (PEP 440, npm), any of which may"
            " match. Without any, all versions match."
        ),
    ] = []


class RuleEntry(ReleasesEntry, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a rule says about releases."""

    id: Annotated[
        str | None,
        Meta(description="How audit rows name the rule; by default its package and versions."),
    ] = None
    reason: Annotated[
        str | None, Meta(description="Shown to the person whose install is blocked.")
    ] = None


class AllowEntry(RuleEntry, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Releases that need not wait."""

    withdrawn: Annotated[
        # Left out unless it is set, as `trust`: nodes of earlier versions do not know them.
        bool | msgspec.UnsetType,
        Meta(description="Serve them from the cache, too, once their registry has withdrawn them"),
    ] = msgspec.UNSET


class TrustEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is done with a release of weaker provenance than earlier ones of its package."""

    action: TrustAction = "refuse"
    exempt: list[ReleasesEntry] = []
    ignore_after_days: Annotated[int, Meta(ge=1, le=DAYS_MAX)] | None = None


class CooldownEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How old a release must be."""

    min_age_days: Annotated[int, Meta(ge=1, le=DAYS_MAX)]
    exempt: list[PackageEntry] = []
    cure: Annotated[
        bool | msgspec.UnsetType,
        Meta(description="Allow the lowest fixed release if all that are old enough are affected"),
    ] = msgspec.UNSET


class PolicyDocument(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An install policy. What is not given is empty, or the default.

    At most 300 entries in each list.
    """

    mode: PolicyMode = PolicyMode.ENFORCE
    first_party: list[FirstPartyEntry] = []
    deny: list[RuleEntry] = []
    trust: TrustEntry | msgspec.UnsetType | None = msgspec.UNSET
    allow: Annotated[
        list[AllowEntry],
        Meta(description="Exceptions from the cooldown, and from withdrawals if they say so."),
    ] = []
    cooldown: CooldownEntry | None = None


def entry_models() -> dict[str, type[Struct]]:
    """What an entry is in each part of the document that is a list, by the part's name."""
    hints = get_type_hints(PolicyDocument)
    return {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is list}


_STORED: Final = msgspec.json.Decoder(PolicyDocument)

DOCUMENT_EXAMPLE: Final = {
    "mode": "enforce",
    "first_party": [
        {"ecosystem": "npm", "package": "@acme/*", "registry": "npm.acme.example"},
    ],
    "deny": [
        {
            "ecosystem": "npm",
            "package": "left-pad",
            "versions": ["<1.3.0"],
            "id": "left-pad-old",
            "reason": "unmaintained: use String.padStart",
        }
    ],
    "allow": [{"ecosystem": "pypi", "package": "requests", "versions": ["==2.32.3"]}],
    "cooldown": {
        "min_age_days": 7,
        "exempt": [{"ecosystem": "pypi", "package": "acme-*"}],
    },
}


def parse_policy(document: object) -> InstallPolicy:
    """The policy in `document`, which has JSON's types. Raises Invalid with the field."""
    try:
        parsed = msgspec.convert(_with_whole_days(document), PolicyDocument, strict=True)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from error
    except UnicodeEncodeError as error:  # of a member's name, or where one of several texts fits
        raise _unencodable(document) from error
    _check_counts(parsed)
    policy = _policy(parsed, _rule)
    _require_unique_ids(policy)
    # The stored form counts: with canonical names and all ids it can be longer than what was sent.
    if len(encode_document(policy)) > DOCUMENT_BYTES_MAX:
        raise Invalid(f"the policy must be at most {DOCUMENT_BYTES_MAX} bytes of compact JSON")
    return policy


def _policy(parsed: PolicyDocument, rule: Callable[[str, RuleEntry], ReleaseRule]) -> InstallPolicy:
    return InstallPolicy(
        mode=parsed.mode,
        first_party=tuple(
            _first_party(f"first_party[{number}]", entry)
            for number, entry in enumerate(parsed.first_party)
        ),
        deny=tuple(rule(f"deny[{number}]", entry) for number, entry in enumerate(parsed.deny)),
        trust=_trust(parsed.trust, rule) if parsed.trust else None,
        allow=tuple(rule(f"allow[{number}]", entry) for number, entry in enumerate(parsed.allow)),
        cooldown=None if parsed.cooldown is None else _cooldown(parsed.cooldown),
    )


def _with_whole_days(document: object) -> object:
    """`document` with a whole number of days as an integer: to JSON Schema, 7.0 is one."""
    match document:
        case {"cooldown": {"min_age_days": float(days), **cooldown}, **others} if days.is_integer():
            return _with_whole_days(others | {"cooldown": cooldown | {"min_age_days": int(days)}})
        case {"trust": {"ignore_after_days": float(days), **rest}, **others} if days.is_integer():
            return others | {"trust": rest | {"ignore_after_days": int(days)}}
    return document


def to_document(policy: InstallPolicy) -> PolicyDocument:
    """The document of `policy`, with canonical names and every rule's id."""
    cooldown = policy.cooldown
    return PolicyDocument(
        mode=policy.mode,
        first_party=[
            FirstPartyEntry(
                ecosystem=entry.packages.ecosystem,
                package=entry.packages.pattern.text,
                registry=entry.registry,
            )
            for entry in policy.first_party
        ],
        deny=[_rule_entry(rule) for rule in policy.deny],
        trust=msgspec.UNSET if policy.trust is None else _trust_entry(policy.trust),
        allow=[
            AllowEntry(
                **msgspec.structs.asdict(_rule_entry(rule)),
                withdrawn=rule.withdrawn or msgspec.UNSET,
            )
            for rule in policy.allow
        ],
        cooldown=None
        if cooldown is None
        else CooldownEntry(
            min_age_days=cooldown.min_age_days,
            exempt=[
                PackageEntry(ecosystem=entry.ecosystem, package=entry.pattern.text)
                for entry in cooldown.exempt
            ],
            cure=cooldown.cure or msgspec.UNSET,
        ),
    )


def to_json(policy: InstallPolicy) -> dict[str, Any]:
    """The document of `policy` in JSON's types."""
    document: dict[str, Any] = msgspec.to_builtins(to_document(policy))
    return document


def encode_document(policy: InstallPolicy) -> bytes:
    """The document of `policy` as compact JSON. Equal policies have equal documents."""
    return msgspec.json.encode(to_document(policy))


def decode_document(stored: bytes) -> InstallPolicy:
    """The policy that `encode_document` stored.

    Its ranges are read once they are asked for: pages only show them.
    """
    return _policy(_STORED.decode(stored), _stored_rule)


def _named(text: str) -> Invalid:
    match = _PLACE.fullmatch(text)
    if match is None or not match["path"]:
        return Invalid(text[:1].lower() + text[1:])
    return _invalid(match["path"], match["text"][:1].lower() + match["text"][1:])


def _unencodable(document: object) -> Invalid:
    """The refusal for the first text in `document` with a lone surrogate."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, str) and not is_encodable(value):
            return _invalid(field, "must be text without lone surrogates")
        members: list[tuple[str, object]] = []
        if isinstance(value, dict):
            for name, member in value.items():
                if not is_encodable(name):
                    return _invalid(f"{field}.{name[:64]}".lstrip("."), "is an unknown field")
                members.append((f"{field}.{name}".lstrip("."), member))
        elif isinstance(value, list):
            members = [(f"{field}[{number}]", member) for number, member in enumerate(value)]
        waiting += reversed(members)
    return NOT_STORABLE_TEXT()


def _invalid(field: str, text: str) -> Invalid:
    return Invalid(f"{field}: {text}", field=field)


def _check_counts(parsed: PolicyDocument) -> None:
    exempt = [] if parsed.cooldown is None else parsed.cooldown.exempt
    trusted = parsed.trust.exempt if parsed.trust else []
    for field, entries in (
        ("first_party", parsed.first_party),
        ("deny", parsed.deny),
        ("allow", parsed.allow),
        ("trust.exempt", trusted),
        ("cooldown.exempt", exempt),
    ):
        if len(entries) > RULES_MAX:
            raise _invalid(field, f"must have at most {RULES_MAX} entries")


def _first_party(field: str, entry: FirstPartyEntry) -> FirstParty:
    registry = check_line(f"{field}.registry", entry.registry, REGISTRY_MAX)
    return FirstParty(_packages(field, entry.ecosystem, entry.package), registry)


def _rule(field: str, entry: RuleEntry) -> ReleaseRule:
    packages = _packages(field, entry.ecosystem, entry.package)
    texts = (entry.versions,) if isinstance(entry.versions, str) else tuple(entry.versions)
    texts = tuple(" ".join(text.split()) for text in texts)
    try:
        for text in texts:
            parse_range(entry.ecosystem, text)
    except InvalidRange as error:
        raise _invalid(f"{field}.versions", str(error)) from error
    rule_id = entry.id if entry.id is not None else _default_id(packages, texts)
    return ReleaseRule(
        rule_id=check_line(f"{field}.id", rule_id, RULE_ID_MAX),
        packages=packages,
        texts=texts,
        reason=None
        if entry.reason is None
        else check_line(f"{field}.reason", entry.reason, REASON_MAX),
        withdrawn=_is_for_withdrawn(entry),
    )


def _stored_rule(field: str, entry: RuleEntry) -> ReleaseRule:
    """A rule that was checked when it was stored, as `_rule_entry` wrote it."""
    packages = _packages(field, entry.ecosystem, entry.package)
    return ReleaseRule(
        entry.id or "", packages, tuple(entry.versions), entry.reason, _is_for_withdrawn(entry)
    )


def _is_for_withdrawn(entry: RuleEntry) -> bool:
    return isinstance(entry, AllowEntry) and entry.withdrawn is True


def _rule_entry(rule: ReleaseRule) -> RuleEntry:
    return RuleEntry(
        ecosystem=rule.packages.ecosystem,
        package=rule.packages.pattern.text,
        versions=list(rule.texts),
        id=rule.rule_id,
        reason=rule.reason,
    )


def _trust(entry: TrustEntry, rule: Callable[[str, RuleEntry], ReleaseRule]) -> TrustRule:
    exempt = (
        rule(f"trust.exempt[{number}]", RuleEntry(**msgspec.structs.asdict(each), id="exempt"))
        for number, each in enumerate(entry.exempt)
    )
    return TrustRule(entry.action, tuple(exempt), entry.ignore_after_days)


def _trust_entry(rule: TrustRule) -> TrustEntry:
    entries = map(_rule_entry, rule.exempt)
    exempt = [msgspec.convert(each, ReleasesEntry, from_attributes=True) for each in entries]
    return TrustEntry(action=rule.action, exempt=exempt, ignore_after_days=rule.ignore_after_days)


def _default_id(packages: PackagePattern, texts: tuple[str, ...]) -> str:
    text = f"{packages.ecosystem}:{packages.pattern.text}"
    if texts:
        text += f"@{' || '.join(texts)}"
    return text if len(text) <= RULE_ID_MAX else text[: RULE_ID_MAX - 1] + "…"


def _cooldown(entry: CooldownEntry) -> Cooldown:
    exempt = tuple(
        _packages(f"cooldown.exempt[{number}]", each.ecosystem, each.package)
        for number, each in enumerate(entry.exempt)
    )
    return Cooldown(entry.min_age_days, exempt, cure=entry.cure is True)


def _packages(field: str, ecosystem: Ecosystem, text: str) -> PackagePattern:
    try:
        return PackagePattern(ecosystem, parse_pattern(ecosystem, text))
    except InvalidPackageName as error:
        raise _invalid(f"{field}.package", str(error)) from error


def check_line(field: str, text: str, chars_max: int) -> str:
    """`text`, if it is one visible line, as people need it in rows and answers. Raises Invalid."""
    # Invisible characters, such as those for the direction of text, could disguise what it says.
    unseen = any(unicodedata.category(character) in _UNSEEN for character in text)
    if not 1 <= len(text) <= chars_max or unseen or text != text.strip():
        raise _invalid(field, f"must be 1 to {chars_max} visible characters on one line")
    return text


def _require_unique_ids(policy: InstallPolicy) -> None:
    """Raise Invalid if two rules share an id: an audit row must name one rule."""
    fields: dict[str, str] = {}
    for name, entries in policy.entries.items():
        for number, rule in enumerate(entries):
            if not isinstance(rule, ReleaseRule):
                continue
            field = f"{name}[{number}]"
            other = fields.setdefault(rule.rule_id, field)
            if other != field:
                raise _invalid(f"{field}.id", f"{rule.rule_id} is the id of {other}, too")
