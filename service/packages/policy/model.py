"""An install policy, and the decisions that it leads to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import (
    ArtifactChanged,
    BlocklistHit,
    CooldownActive,
    ReleaseWithdrawn,
    TrustDowngraded,
)
from analytics.model.events import Envelope, Event
from service.packages.intervals import EVERYTHING, Interval
from service.packages.names import NamePattern
from service.packages.versions import parse_range

_LABEL: Final = "label"

TrustAction = Literal["refuse", "mark"]
"""What is done with a release of weaker provenance: one that is marked is served."""


class PolicyMode(StrEnum):
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

    @property
    def spec(self) -> str:
        """The packages as one word: `npm:@acme/*`."""
        return f"{self.ecosystem}:{self.pattern.text}"


@dataclass(frozen=True, slots=True)
class FirstParty:
    """Packages that come only from the organisation's `registry`, never from a public one."""

    packages: PackagePattern
    registry: str

    @property
    def name(self) -> str:
        """How forms and people name the entry."""
        return f"{self.packages.spec} from {self.registry}"

    @property
    def line(self) -> str:
        """The entry in the difference of two policies."""
        return self.name


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """Releases of packages: those in one of the ranges in `texts`, or all if there are none.

    An allow rule may be for releases that are `withdrawn` by their registry, too.
    """

    rule_id: str
    packages: PackagePattern
    texts: tuple[str, ...]
    reason: str | None
    withdrawn: bool = False

    @property
    def name(self) -> str:
        """How forms and people name the rule."""
        return self.rule_id

    @property
    def line(self) -> str:
        """The rule in the difference of two policies."""
        versions = f" {' || '.join(self.texts)}" if self.texts else ""
        withdrawn = ", also if withdrawn" if self.withdrawn else ""
        reason = "" if self.reason is None else f" ({self.reason})"
        return f"{self.rule_id}: {self.packages.spec}{versions}{withdrawn}{reason}"

    def intervals(self) -> Iterator[Interval]:
        """The versions that the rule includes. Takes 10 µs for each specifier in `texts`."""
        if not self.texts:
            yield EVERYTHING
        for text in self.texts:
            yield from parse_range(self.packages.ecosystem, text).intervals


@dataclass(frozen=True, slots=True)
class TrustRule:
    """No release may have weaker provenance than earlier ones of its package.

    Except those in `exempt`, and those that have been public for `ignore_after_days`.
    """

    action: TrustAction
    exempt: tuple[ReleaseRule, ...]
    ignore_after_days: int | None

    @property
    def lines(self) -> list[str]:
        """The rule in the difference of two policies."""
        days = self.ignore_after_days
        after = [] if days is None else [f"not after {days} days"]
        exempt = [f"not for {line}" for line in self.exempt_lines]
        return [f"{self.action} downgrades", *after, *exempt]

    @property
    def exempt_lines(self) -> list[str]:
        """What is exempt, a range a line, as forms take it."""
        return [
            f"{rule.packages.spec} {text}".rstrip()
            for rule in self.exempt
            for text in rule.texts or ("",)
        ]


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Releases younger than `min_age_days` are blocked, except those of `exempt` packages."""

    min_age_days: int
    exempt: tuple[PackagePattern, ...]
    cure: bool = False
    """If all releases that are old enough are affected by advisories, the lowest fixed one is
    allowed."""

    @property
    def lines(self) -> list[str]:
        """The cooldown in the difference of two policies."""
        exempt = [f"not for {each.spec}" for each in self.exempt]
        return [f"{self.min_age_days} days", *exempt, *(["not for the cure"] if self.cure else [])]


@dataclass(frozen=True, slots=True)
class InstallPolicy:
    """The policy of one organisation. `allow` lifts the cooldown, and a withdrawal if it says so.

    Its parts are in their order on pages, each with its label there.
    """

    mode: PolicyMode = field(default=PolicyMode.ENFORCE, metadata={_LABEL: "PolicyMode"})
    first_party: tuple[FirstParty, ...] = field(default=(), metadata={_LABEL: "First-party"})
    deny: tuple[ReleaseRule, ...] = field(default=(), metadata={_LABEL: "Deny"})
    trust: TrustRule | None = field(default=None, metadata={_LABEL: "Trust"})
    allow: tuple[ReleaseRule, ...] = field(default=(), metadata={_LABEL: "Allow"})
    cooldown: Cooldown | None = field(default=None, metadata={_LABEL: "Cooldown"})

    @property
    def entries(self) -> dict[str, tuple[FirstParty | ReleaseRule, ...]]:
        """The parts that are lists, by name."""
        parts = {name: getattr(self, name) for name in PART_LABELS}
        return {name: part for name, part in parts.items() if isinstance(part, tuple)}

    @property
    def lines(self) -> dict[str, list[str]]:
        """The policy by part, as differences show it."""
        return {name: _lines(getattr(self, name)) for name in PART_LABELS}


def _lines(part: object) -> list[str]:
    if part is None:
        return []
    if isinstance(part, tuple):
        return [entry.line for entry in part]
    return part.lines if isinstance(part, Cooldown | TrustRule) else [str(part)]


PART_LABELS: Final = {part.name: str(part.metadata[_LABEL]) for part in fields(InstallPolicy)}
"""The parts of a policy by name, in their order, as pages name them."""

NO_POLICY: Final = InstallPolicy()
"""The policy of an organisation that has set none: only the operator's blocklist applies."""


class InForce(NamedTuple):
    """What decisions depend on: an organisation's policy revision and the blocklist's generation.

    0 means that there is none.
    """

    revision: int
    generation: int


NOTHING_IN_FORCE: Final = InForce(0, 0)
DENIED: Final = "denied by rule "
ADVISED: Final = "on the blocklist: advisory "
DOWNGRADED: Final = "trust downgraded: "
WITHDRAWN: Final = "withdrawn: "
TOO_NEW: Final = "too new: "
FILE_CHANGED: Final = "file changed: "
BLOCKING_REASONS: Final[Mapping[str, Event]] = {
    DENIED: BlocklistHit.event,
    ADVISED: BlocklistHit.event,
    DOWNGRADED: TrustDowngraded.event,
    WITHDRAWN: ReleaseWithdrawn.event,
    TOO_NEW: CooldownActive.event,
    FILE_CHANGED: ArtifactChanged.event,
}
"""How the reasons of decisions that block begin, and the event of their rows."""


@dataclass(frozen=True, slots=True)
class PolicyDecision:
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


LINES_MAX: Final = 100
"""The maximum number of lines per part and side."""

Parts = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """The removed and the added lines, by part; `omitted` counts the lines that did not fit."""

    before: Parts
    after: Parts
    omitted: int


def difference(before: InstallPolicy, after: InstallPolicy) -> PolicyDifference:
    """What differs between two policies. If only a part's order changed, all of it is shown."""
    old, new = before.lines, after.lines
    gone: Parts = {}
    added: Parts = {}
    omitted = 0
    for part in old:
        if old[part] == new[part]:
            continue
        for lines, others, into in ((old[part], new[part], gone), (new[part], old[part], added)):
            known = set(others)
            changed = [line for line in lines if line not in known]
            if set(lines) == known:
                changed = list(lines)
            if changed:
                into[part] = changed[:LINES_MAX]
                omitted += len(changed) - len(into[part])
    return PolicyDifference(gone, added, omitted)
