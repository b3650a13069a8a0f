"""Deciding on a release: first-party, deny, OSV, trust, withdrawn, allow, the cure, cooldown."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from operator import itemgetter
from typing import Final, NamedTuple, Self, TypeVar, cast

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import (
    BlocklistHit,
    CooldownActive,
    Cured,
    InstallAllowed,
    OssFirstParty,
    ProvenanceLevel,
    ReleaseWithdrawn,
    TrustDowngraded,
)
from analytics.model.instants import format_ms
from service.packages.ecosystem import ComparableVersion, Provenance, Release
from service.packages.names import NamePattern, PatternIndex
from service.packages.policy.advisories import NO_ADVISORIES, PackageAdvisories
from service.packages.policy.model import (
    ADVISED,
    DENIED,
    DOWNGRADED,
    NOTHING_IN_FORCE,
    TOO_NEW,
    WITHDRAWN,
    InForce,
    InstallPolicy,
    PackagePattern,
    PolicyDecision,
    PolicyMode,
    ReleaseRule,
)
from service.packages.policy.rules import Rules
from service.packages.policy.trust import PackageTrust
from service.packages.versions import find_version, is_prerelease, sort_key

_SETS_KEPT: Final = 64
"""Different sets of a policy's rules that are kept merged: rules with globs are on many packages.
A set of all the ranges that a policy may have takes 2 MB."""

_Value = TypeVar("_Value")

_ALLOWED: Final = PolicyDecision(
    InstallAllowed.event,
    InstallAllowed(),
    is_blocked=False,
    is_enforced=True,
    rule_id=None,
    reason="no rule is against it",
)


def reason_of_cure(why: Cured) -> str:
    """Why a release is exempt from the cooldown, for people."""
    return f"the cure: no older release is without advisory, {why.affected} has {why.advisory_id}"


class Cure(NamedTuple):
    """The version that need not wait, and why."""

    version: ComparableVersion
    why: Cured


@dataclass(frozen=True, slots=True)
class PackagePolicy:
    """What the policy of an organisation and the advisories say about one package.

    `registry` is set for a first-party package, which must never be requested from a public one.
    `min_age` is None without a cooldown. `version` changes whenever any decision could change
    other than by time. `in_force` is of which revision and generation it is. If it `has_cure`,
    `cure` is found by `among`. `withdrawn` is since when its registry does not list versions, for
    releases that do not say so themselves.
    """

    ecosystem: Ecosystem
    name: str
    mode: PolicyMode
    registry: str | None
    deny: Rules
    advisories: PackageAdvisories
    allow: Rules
    allow_withdrawn: Rules
    min_age: timedelta | None
    version: str
    in_force: InForce = NOTHING_IN_FORCE
    trust: PackageTrust | None = None
    has_cure: bool = False
    cure: Cure | None = None
    withdrawn: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def is_relative(self) -> bool:
        """True if a decision may depend on the other releases that the registry lists."""
        return self.trust is not None or self.has_cure

    def among(self, releases: Iterable[Release], now: datetime) -> Self:
        """The policy as of `now`, on releases among these, which are all that are listed."""
        if not self.is_relative:
            return self
        listed = list(releases)
        policy = replace(self, trust=self.trust and self.trust.among(listed))
        return replace(policy, cure=policy._find_cure(listed, now)) if self.has_cure else policy

    def decide(self, release: Release, now: datetime) -> PolicyDecision:
        """The decision on one release of this package, without I/O."""
        if self.registry is not None:
            return self._first_party(self.registry)
        version = self._version_of(release)
        blocked = self._blocked_at_any_age(release, version, now)
        blocked = blocked or self._withdrawn(release, version)
        if blocked is not None:
            return blocked
        # The allow rules in it lift nothing else.
        cooling = self._cooling(release, version, now)
        if cooling is not None and cooling.is_blocked:
            return cooling
        return self._weaker(release, version, now) or cooling or _ALLOWED

    def next_change_at(
        self, published_ats: Iterable[datetime | None], now: datetime
    ) -> datetime | None:
        """When the passage of time next changes a decision on such releases, None for never."""
        if self.registry is not None:
            return None
        dates = [at for at in published_ats if at is not None]
        ages = (self.min_age, None if self.trust is None else self.trust.ignore_after)
        ends = [_next_end(dates, age, now) for age in ages if age is not None]
        return min((end for end in ends if end is not None), default=None)

    def _find_cure(self, releases: Iterable[Release], now: datetime) -> Cure | None:
        """The lowest version above all that are old enough, if advisories affect all of those.

        Releases that are yanked or cannot be compared do not count, prereleases only if there
        is nothing else.
        """
        known = [
            (sort_key(version), version, each)
            for each in releases
            if not each.is_yanked and (version := self._version_of(each)) is not None
        ]
        old = [entry for entry in known if self._is_old_enough(entry[2], now)]
        if any(not is_prerelease(version) for _, version, _ in old):
            known = [entry for entry in known if not is_prerelease(entry[1])]
            old = [entry for entry in old if not is_prerelease(entry[1])]
        if not old or not all(self._advisory_on(each, version) for _, version, each in old):
            return None
        newest, version, affected = max(old, key=itemgetter(0))
        why = Cured(
            affected=affected.version, advisory_id=str(self._advisory_on(affected, version))
        )
        fixed = [
            (key, version)
            for key, version, each in known
            if key > newest and not self._blocked_at_any_age(each, version, now)
        ]
        return Cure(min(fixed, key=itemgetter(0))[1], why) if fixed else None

    def _version_of(self, release: Release) -> ComparableVersion | None:
        """The release's version if any rule asks for it; None if it cannot be read."""
        if not (self.deny or self.advisories or self.allow or self.trust):
            return None
        return find_version(self.ecosystem, release.version)

    def _first_party(self, registry: str) -> PolicyDecision:
        return PolicyDecision(
            OssFirstParty.event,
            OssFirstParty(registry=registry),
            is_blocked=False,
            is_enforced=True,
            rule_id=None,
            reason=f"first-party: comes from {registry} alone",
        )

    def _denied(self, version: ComparableVersion | None) -> PolicyDecision | None:
        rule = self.deny.first_or_any(version)
        if rule is None:
            return None
        text = f"{DENIED}{rule.rule_id}"
        if rule.reason is not None:
            text = f"{text}: {rule.reason}"
        return self._blocked(
            BlocklistHit(rule_id=rule.rule_id, source="operator"), rule.rule_id, text
        )

    def _advised(
        self, release: Release, version: ComparableVersion | None
    ) -> PolicyDecision | None:
        advisory_id = self._advisory_on(release, version)
        if advisory_id is None:
            return None
        return self._blocked(
            BlocklistHit(rule_id=advisory_id, source="osv"), advisory_id, f"{ADVISED}{advisory_id}"
        )

    def _blocked_at_any_age(
        self, release: Release, version: ComparableVersion | None, now: datetime
    ) -> PolicyDecision | None:
        is_rule = self.trust is not None and self.trust.refuses
        return (
            self._denied(version)
            or self._advised(release, version)
            or (self._weaker(release, version, now) if is_rule else None)
        )

    def _withdrawn(
        self, release: Release, version: ComparableVersion | None
    ) -> PolicyDecision | None:
        """Blocked as its registry lists it no more, unless a rule allows such releases."""
        since = release.withdrawn_at or self.withdrawn.get(release.version)
        if since is None or self.allow_withdrawn.first_proven(version):
            return None
        at = format_ms(since)
        reason = f"{WITHDRAWN}its registry has not listed it since {at}"
        return self._blocked(ReleaseWithdrawn(withdrawn_at=at), None, reason)

    def _weaker(
        self, release: Release, version: ComparableVersion | None, now: datetime
    ) -> PolicyDecision | None:
        stronger = None if self.trust is None else self.trust.stronger(release, version, now)
        if stronger is None:
            return None
        before, level = _words(stronger.provenance), _words(release.provenance)
        reason = f"{level}, and {stronger.version} had {before}".replace("_", " ")
        return self._downgraded(release, stronger, reason)

    def other_publisher(
        self, release: Release, earlier: Release, before: str, publisher: str, *, verified: bool
    ) -> PolicyDecision:
        """The decision on a release that another publisher attests than an earlier one."""
        reason = f"published by {publisher}, and {earlier.version} by {before}"
        return self._downgraded(release, earlier, reason, (before, publisher), verified)

    def _downgraded(
        self,
        release: Release,
        earlier: Release,
        reason: str,
        publishers: tuple[str | None, str | None] = (None, None),
        verified: bool = False,
    ) -> PolicyDecision:
        before, now = publishers
        envelope = TrustDowngraded(
            level_before=_words(earlier.provenance),
            level_now=_words(release.provenance),
            version_before=earlier.version,
            publisher_before=before,
            publisher_now=now,
            verified=verified,
        )
        decision = self._blocked(envelope, None, f"{DOWNGRADED}{reason}")
        refuses = self.trust is not None and self.trust.refuses
        return replace(decision, is_enforced=decision.is_enforced and refuses)

    def _advisory_on(self, release: Release, version: ComparableVersion | None) -> str | None:
        return self.advisories.first(release.version, version, release.digests)

    def _is_old_enough(self, release: Release, now: datetime) -> bool:
        # An unknown date counts as too young, like one in the future: either would evade the
        # cooldown otherwise.
        published_at, min_age = release.published_at, self.min_age
        return min_age is None or bool(published_at and now - published_at >= min_age)

    def _cooling(
        self, release: Release, version: ComparableVersion | None, now: datetime
    ) -> PolicyDecision | None:
        """Blocked as too young, allowed by an exception from that, or None."""
        if self._is_old_enough(release, now):
            return None
        rule = self.allow.first_proven(version)
        if rule is not None:
            reason = f"rule {rule.rule_id} lifts the cooldown"
            return replace(_ALLOWED, rule_id=rule.rule_id, reason=reason)
        if self.cure is not None and version == self.cure.version:
            why = self.cure.why
            return replace(_ALLOWED, envelope=InstallAllowed(cured=why), reason=reason_of_cure(why))
        return self._too_new(release.published_at, now)

    def _too_new(self, published_at: datetime | None, now: datetime) -> PolicyDecision:
        days = (self.min_age or timedelta()).days
        # The envelope requires an instant: a release without one counts as published now.
        at = format_ms(published_at or now)
        when = f"published {at}" if published_at else "its publication is not known"
        return self._blocked(
            CooldownActive(published_at=at, min_age_days=days),
            None,
            f"{TOO_NEW}{when}, and releases must be {days} days old",
        )

    def _blocked(
        self,
        envelope: BlocklistHit | CooldownActive | ReleaseWithdrawn | TrustDowngraded,
        rule_id: str | None,
        reason: str,
    ) -> PolicyDecision:
        return PolicyDecision(
            envelope.event,
            envelope,
            is_blocked=True,
            is_enforced=self.mode is PolicyMode.ENFORCE,
            rule_id=rule_id,
            reason=reason,
        )


class CompiledPolicy:
    """A policy in the form in which decisions are made; it is made once for each revision.

    Safe to use from several threads.
    """

    def __init__(self, policy: InstallPolicy) -> None:
        self._policy = policy
        self._first_party = _indexes(
            (entry.packages, entry.registry) for entry in policy.first_party
        )
        self._deny = _numbered(policy.deny)
        self._allow = _numbered(policy.allow)
        exempt = () if policy.cooldown is None else policy.cooldown.exempt
        self._exempt = _indexes((entry, None) for entry in exempt)
        self._has_cure = policy.cooldown is not None and policy.cooldown.cure
        trusted = () if policy.trust is None else policy.trust.exempt
        self._trusted = _numbered(trusted)
        self._trusted_rules = lru_cache(_SETS_KEPT)(partial(_rules, trusted))
        self._deny_rules = lru_cache(_SETS_KEPT)(partial(_rules, policy.deny))
        self._allow_rules = lru_cache(_SETS_KEPT)(partial(_rules, policy.allow))

    def first_party_patterns(self, ecosystem: Ecosystem) -> tuple[NamePattern, ...]:
        """The packages that come from the organisation's registries alone."""
        return tuple(
            entry.packages.pattern
            for entry in self._policy.first_party
            if entry.packages.ecosystem is ecosystem
        )

    def on(
        self,
        ecosystem: Ecosystem,
        name: str,
        advisories: PackageAdvisories = NO_ADVISORIES,
    ) -> PackagePolicy:
        """What the policy and the `advisories` on the package `name` (canonical) say about it."""
        registry = next(iter(self._first_party[ecosystem].matches(name)), None)
        deny = self._deny_rules(*self._deny[ecosystem].matches(name))
        allowing = list(self._allow[ecosystem].matches(name))
        allow = self._allow_rules(*allowing)
        also_withdrawn = [each for each in allowing if self._policy.allow[each].withdrawn]
        allow_withdrawn = self._allow_rules(*also_withdrawn)
        mode, min_age = self._policy.mode, self._min_age(ecosystem, name)
        trust = self._trust(ecosystem, name) if registry is None else None
        has_cure = min_age is not None and bool(advisories) and self._has_cure
        said = (
            str(mode),
            registry,
            deny.fingerprint,
            allow.fingerprint,
            min_age,
            advisories.fingerprint,
            has_cure,
            trust and (trust.refuses, trust.exempt.fingerprint, trust.ignore_after),
        )
        version = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
        return PackagePolicy(
            ecosystem,
            name,
            mode,
            registry,
            deny,
            advisories,
            allow,
            allow_withdrawn,
            min_age,
            version,
            trust=trust,
            has_cure=has_cure,
        )

    def _trust(self, ecosystem: Ecosystem, name: str) -> PackageTrust | None:
        rule = self._policy.trust
        if rule is None:
            return None
        exempt = self._trusted_rules(*self._trusted[ecosystem].matches(name))
        days = rule.ignore_after_days
        after = None if days is None else timedelta(days=days)
        return PackageTrust(rule.action == "refuse", exempt, after)

    def _min_age(self, ecosystem: Ecosystem, name: str) -> timedelta | None:
        cooldown = self._policy.cooldown
        if cooldown is None or self._exempt[ecosystem].is_match(name):
            return None
        return timedelta(days=cooldown.min_age_days)


def _next_end(dates: Iterable[datetime], age: timedelta, now: datetime) -> datetime | None:
    """When the next of `dates` is of this age."""
    # `>`, because a release of exactly the age is old enough, see `_is_old_enough`.
    first = min((at for at in dates if at > now - age), default=None)
    try:
        return None if first is None else first + age
    except OverflowError:  # a date that a registry made up
        return None


def _words(level: Provenance | None) -> ProvenanceLevel:
    return cast("ProvenanceLevel", (level or Provenance.NONE).name.lower())


def _indexes(
    patterns: Iterable[tuple[PackagePattern, _Value]],
) -> dict[Ecosystem, PatternIndex[_Value]]:
    by_ecosystem: dict[Ecosystem, list[tuple[NamePattern, _Value]]] = {
        ecosystem: [] for ecosystem in Ecosystem
    }
    for packages, value in patterns:
        by_ecosystem[packages.ecosystem].append((packages.pattern, value))
    return {ecosystem: PatternIndex(entries) for ecosystem, entries in by_ecosystem.items()}


def _numbered(rules: Sequence[ReleaseRule]) -> dict[Ecosystem, PatternIndex[int]]:
    return _indexes((rule.packages, number) for number, rule in enumerate(rules))


def _rules(rules: Sequence[ReleaseRule], *numbers: int) -> Rules:
    return Rules([rules[number] for number in numbers])
