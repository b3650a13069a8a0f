"""Deciding on a release: first-party, deny, OSV, allow, cooldown, in this order."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from analytics.model.envelopes import BlocklistHit, CooldownActive, InstallAllowed, OssFirstParty
from analytics.model.events import Event
from analytics.model.instants import format_ms
from service.packages.ecosystems import Ecosystem
from service.packages.release import Release
from service.packages.versions import InvalidVersion, Version, parse_version
from service.policy.advisories import Advisory
from service.policy.model import (
    ADVISED,
    DENIED,
    TOO_NEW,
    Decision,
    InstallPolicy,
    Mode,
    ReleaseRule,
)

RANGES_AT_ONCE: Final = 100
"""Ranges of one package that a decision may try in the event loop: 2.5 µs each."""

_ALLOWED: Final = Decision(
    Event.INSTALL_ALLOWED,
    InstallAllowed(),
    is_blocked=False,
    is_enforced=True,
    rule_id=None,
    reason="no rule is against it",
)


@dataclass(frozen=True, slots=True)
class PackagePolicy:
    """What the policy of an organisation and the advisories say about one package.

    `registry` is set for a first-party package, which must never be requested from a public one.
    `min_age` is None without a cooldown. `version` changes whenever any decision could change
    other than by time.
    """

    ecosystem: Ecosystem
    name: str
    mode: Mode
    registry: str | None
    deny: tuple[ReleaseRule, ...]
    advisories: tuple[Advisory, ...]
    allow: tuple[ReleaseRule, ...]
    min_age: timedelta | None
    version: str

    def decide(self, release: Release, now: datetime) -> Decision:
        """The decision on one release of this package, without I/O."""
        if self.registry is not None:
            return self._first_party(self.registry)
        version = self._version_of(release)
        # `_cooling` comes last: the allow rules in it must not lift a denial or an advisory.
        return (
            self._denied(version)
            or self._advised(release, version)
            or self._cooling(release, version, now)
            or _ALLOWED
        )

    @property
    def is_slow(self) -> bool:
        """True if a decision may take so long that many must not be made in the event loop."""
        rules = sum(len(rule.ranges) for rule in (*self.deny, *self.allow))
        return rules + sum(len(advisory.ranges) for advisory in self.advisories) > RANGES_AT_ONCE

    def next_change_at(
        self, published_ats: Iterable[datetime | None], now: datetime
    ) -> datetime | None:
        """When the passage of time next changes a decision on such releases, None for never."""
        if self.registry is not None or self.min_age is None:
            return None
        # `>` below, because a release of exactly the minimum age is old enough, see `_cooling`.
        oldest = now - self.min_age
        too_young = (at for at in published_ats if at is not None and at > oldest)
        first = min(too_young, default=None)
        try:
            return None if first is None else first + self.min_age
        except OverflowError:  # a date that a registry made up
            return None

    def _version_of(self, release: Release) -> Version | None:
        """The release's version if any rule asks for it; None if it cannot be read."""
        if not (self.deny or self.advisories or self.allow):
            return None
        try:
            return parse_version(self.ecosystem, release.version)
        except InvalidVersion:
            return None

    def _first_party(self, registry: str) -> Decision:
        return Decision(
            Event.OSS_FIRST_PARTY,
            OssFirstParty(registry=registry),
            is_blocked=False,
            is_enforced=True,
            rule_id=None,
            reason=f"first-party: comes from {registry} alone",
        )

    def _denied(self, version: Version | None) -> Decision | None:
        for rule in self.deny:
            # A version that cannot be parsed cannot be shown to lie outside the range.
            if version is None or rule.includes(version):
                text = f"{DENIED}{rule.rule_id}"
                if rule.reason is not None:
                    text = f"{text}: {rule.reason}"
                return self._blocked(
                    BlocklistHit(rule_id=rule.rule_id, source="operator"), rule.rule_id, text
                )
        return None

    def _advised(self, release: Release, version: Version | None) -> Decision | None:
        for advisory in self.advisories:
            if advisory.affects(release.version, version, release.digests):
                advisory_id = advisory.advisory_id
                return self._blocked(
                    BlocklistHit(rule_id=advisory_id, source="osv"),
                    advisory_id,
                    f"{ADVISED}{advisory_id}",
                )
        return None

    def _cooling(self, release: Release, version: Version | None, now: datetime) -> Decision | None:
        """Blocked as too young, allowed by an exception from that, or None."""
        published_at = release.published_at
        # An unknown date counts as too young, like one in the future: either would evade the
        # cooldown otherwise.
        if self.min_age is None or (published_at and now - published_at >= self.min_age):
            return None
        for rule in self.allow:
            # Unlike a deny rule: a version that cannot be parsed cannot be shown to lie inside the
            # range.
            if not rule.ranges or (version is not None and rule.includes(version)):
                return Decision(
                    Event.INSTALL_ALLOWED,
                    InstallAllowed(),
                    is_blocked=False,
                    is_enforced=True,
                    rule_id=rule.rule_id,
                    reason=f"rule {rule.rule_id} lifts the cooldown",
                )
        days = self.min_age.days
        # The envelope requires an instant: a release without one counts as published now.
        at = format_ms(published_at or now)
        when = f"published {at}" if published_at else "its publication is not known"
        return self._blocked(
            CooldownActive(published_at=at, min_age_days=days),
            None,
            f"{TOO_NEW}{when}, and releases must be {days} days old",
            Event.COOLDOWN_ACTIVE,
        )

    def _blocked(
        self,
        envelope: BlocklistHit | CooldownActive,
        rule_id: str | None,
        reason: str,
        kind: Event = Event.BLOCKLIST_HIT,
    ) -> Decision:
        return Decision(
            kind,
            envelope,
            is_blocked=True,
            is_enforced=self.mode is Mode.ENFORCE,
            rule_id=rule_id,
            reason=reason,
        )


def package_policy(
    policy: InstallPolicy, advisories: Sequence[Advisory], ecosystem: Ecosystem, name: str
) -> PackagePolicy:
    """What `policy` and the `advisories` on the package `name` (canonical) say about it."""
    registries = (
        entry.registry for entry in policy.first_party if entry.packages.matches(ecosystem, name)
    )
    registry = next(registries, None)
    deny = _matching(policy.deny, ecosystem, name)
    allow = _matching(policy.allow, ecosystem, name)
    min_age = _min_age(policy, ecosystem, name)
    told = sorted((advisory.advisory_id, advisory.fingerprint) for advisory in advisories)
    said = (str(policy.mode), registry, _told(deny), _told(allow), min_age, told)
    return PackagePolicy(
        ecosystem=ecosystem,
        name=name,
        mode=policy.mode,
        registry=registry,
        deny=deny,
        advisories=tuple(advisories),
        allow=allow,
        min_age=min_age,
        version=hashlib.sha256(repr(said).encode()).hexdigest()[:16],
    )


def decide(
    policy: InstallPolicy, advisories: Sequence[Advisory], release: Release, now: datetime
) -> Decision:
    """The decision on one release; `advisories` are those on its package."""
    return package_policy(policy, advisories, release.ecosystem, release.name).decide(release, now)


def _matching(
    rules: Iterable[ReleaseRule], ecosystem: Ecosystem, name: str
) -> tuple[ReleaseRule, ...]:
    return tuple(rule for rule in rules if rule.packages.matches(ecosystem, name))


def _min_age(policy: InstallPolicy, ecosystem: Ecosystem, name: str) -> timedelta | None:
    cooldown = policy.cooldown
    if cooldown is None or any(entry.matches(ecosystem, name) for entry in cooldown.exempt):
        return None
    return timedelta(days=cooldown.min_age_days)


def _told(rules: Iterable[ReleaseRule]) -> list[tuple[str, tuple[str, ...], str | None]]:
    return [(rule.rule_id, rule.texts, rule.reason) for rule in rules]
