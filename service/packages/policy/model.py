"""An install policy, and the decisions that it leads to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from analytics.model.events import Envelope, Event
from service.packages.ecosystems import Ecosystem
from service.packages.intervals import EVERYTHING, Interval
from service.packages.names import NamePattern
from service.packages.versions import parse_range


class Mode(StrEnum):
    """The effect of a decision to block."""

    ENFORCE = "enforce"
    """The release is refused."""
    AUDIT = "audit"
    """The release is served, and it is recorded that it would have been blocked."""


@dataclass(frozen=True, slots=True)
class PackagePattern:
    """Packages of one ecosystem, by name or glob."""

    ecosystem: Ecosystem
    pattern: NamePattern


@dataclass(frozen=True, slots=True)
class FirstParty:
    """Packages that come only from the organisation's `registry`, never from a public one."""

    packages: PackagePattern
    registry: str


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """Releases of packages: those in one of the ranges in `texts`, or all if there are none."""

    rule_id: str
    packages: PackagePattern
    texts: tuple[str, ...]
    reason: str | None

    def intervals(self) -> Iterator[Interval]:
        """The versions that the rule includes. Takes 10 µs for each specifier in `texts`."""
        if not self.texts:
            yield EVERYTHING
        for text in self.texts:
            yield from parse_range(self.packages.ecosystem, text).intervals


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Releases younger than `min_age_days` are blocked, except those of `exempt` packages."""

    min_age_days: int
    exempt: tuple[PackagePattern, ...]


@dataclass(frozen=True, slots=True)
class InstallPolicy:
    """The policy of one organisation. `allow` lifts the cooldown, and nothing else."""

    mode: Mode = Mode.ENFORCE
    first_party: tuple[FirstParty, ...] = ()
    deny: tuple[ReleaseRule, ...] = ()
    allow: tuple[ReleaseRule, ...] = ()
    cooldown: Cooldown | None = None


NO_POLICY: Final = InstallPolicy()
"""The policy of an organisation that has set none: only the operator's blocklist applies."""


DENIED: Final = "denied by rule "
ADVISED: Final = "on the blocklist: advisory "
TOO_NEW: Final = "too new: "
FILE_CHANGED: Final = "file changed: "
BLOCKING_REASONS: Final[Mapping[str, Event]] = {
    DENIED: Event.BLOCKLIST_HIT,
    ADVISED: Event.BLOCKLIST_HIT,
    TOO_NEW: Event.COOLDOWN_ACTIVE,
    FILE_CHANGED: Event.ARTIFACT_CHANGED,
}
"""How the reasons of decisions that block begin, and the event of their rows."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one release.

    `envelope` is for its audit row. `is_enforced` is False in audit mode, in which a blocked
    release is still served. `rule_id` is the rule, advisory or exception that decided, None if no
    single one did. `reason` is one line for people.
    """

    kind: Event
    envelope: Envelope
    is_blocked: bool
    is_enforced: bool
    rule_id: str | None
    reason: str

    @property
    def is_refused(self) -> bool:
        """True if the release must not be served."""
        return self.is_blocked and self.is_enforced
