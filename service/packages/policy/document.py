"""The document that a policy is written in: JSON in the API, TOML in the file of `apply`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from service.packages.ecosystems import Ecosystem
from service.packages.names import NAME_MAX
from service.packages.policy.model import Mode
from service.packages.versions import VERSION_MAX

RULES_MAX: Final = 300
"""Entries in each list of a policy. Not in the schema: a longer one may be refused unread (413)."""
RANGES_MAX: Final = 32
"""Ranges of one rule."""
RULE_ID_MAX: Final = 100
REASON_MAX: Final = 256
REGISTRY_MAX: Final = 200
MIN_AGE_DAYS_MAX: Final = 3_650
DOCUMENT_BYTES_MAX: Final = 64 * 1024
"""The whole document as compact JSON: what the API accepts as a body by default."""

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


class FirstPartyEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Packages that an internal registry alone may deliver."""

    ecosystem: Ecosystem
    package: PackageText
    registry: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REGISTRY_MAX,
            description="The registry that they come from, as audit rows name it.",
        ),
    ]


class RuleEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Releases by package and version."""

    ecosystem: Ecosystem
    package: PackageText
    versions: Annotated[
        RangeText | Annotated[list[RangeText], Meta(max_length=RANGES_MAX)],
        Meta(
            description="Ranges in the ecosystem's own form (PEP 440, npm), any of which may"
            " match. Without any, all versions match."
        ),
    ] = []
    id: Annotated[
        str | None,
        Meta(description="How audit rows name the rule; by default its package and versions."),
    ] = None
    reason: Annotated[
        str | None, Meta(description="Shown to the person whose install is blocked.")
    ] = None


class CooldownEntry(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How old a release must be."""

    min_age_days: Annotated[int, Meta(ge=1, le=MIN_AGE_DAYS_MAX)]
    exempt: list[PackageEntry] = []


class PolicyDocument(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An install policy. What is not given is empty, or the default.

    At most 300 entries in each list.
    """

    mode: Mode = Mode.ENFORCE
    first_party: list[FirstPartyEntry] = []
    deny: list[RuleEntry] = []
    allow: Annotated[
        list[RuleEntry],
        Meta(description="Exceptions from the cooldown, and nothing else."),
    ] = []
    cooldown: CooldownEntry | None = None


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
