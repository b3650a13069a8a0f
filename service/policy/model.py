"""An install policy, and what is decided by it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from analytics.model.events import Envelope, Event
from service.packages.ecosystems import Ecosystem
from service.packages.names import NamePattern
from service.packages.versions import Version, VersionRange


class Mode(StrEnum):
    """What follows from a decision to block."""

    ENFORCE = "enforce"
    """The release is refused."""
    AUDIT = "audit"
    """It is recorded that the release would be blocked, and the release is served."""


@dataclass(frozen=True, slots=True)
class PackagePattern:
    """Packages of one ecosystem, by name or glob."""

    ecosystem: Ecosystem
    pattern: NamePattern

    def matches(self, ecosystem: Ecosystem, name: str) -> bool:
        """True if the package `name` (canonical) is one of these."""
        return ecosystem is self.ecosystem and self.pattern.matches(name)


@dataclass(frozen=True, slots=True)
class FirstParty:
    """Packages that come from the organisation's `registry` alone, never from a public one."""

    packages: PackagePattern
    registry: str


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """Releases of packages: those in one of `ranges`, or all if there are none.

    `texts` are the ranges as they are written.
    """

    rule_id: str
    packages: PackagePattern
    texts: tuple[str, ...]
    ranges: tuple[VersionRange, ...]
    reason: str | None

    def includes(self, version: Version) -> bool:
        """True if the rule names this version of its packages."""
        return not self.ranges or any(range_.contains(version) for range_ in self.ranges)


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Releases younger than `min_age_days` are blocked, but for `exempt` packages."""

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
"""The policy of an organisation that has set none: the operator's blocklist alone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one release.

    `envelope` is what its audit row says. `is_enforced` is False in audit mode: what is blocked is
    served all the same. `rule_id` is the rule, advisory or exception that decided, None where no
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
