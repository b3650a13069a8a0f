"""Packages that the demo's jobs install, and the proxy's verdict on each version."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final

import msgspec

from analytics.model.decision_reason import compact, decision_reason
from analytics.model.envelopes import BlocklistHit, CooldownActive, InstallAllowed, OssFirstParty
from analytics.model.events import Envelope
from analytics.model.instants import format_ms
from service.cli.demo.calendar import HISTORY_DAYS, Calendar, from_us, seeded, to_us
from service.cli.demo.profile import EcosystemEntry, EcosystemName, Profile, Rule

_ADOPTED_SHARE: Final = 0.8  # of installs take the newest version once its cooldown is over
_FIRST_PARTY_SHARE: Final = 0.09  # of a lockfile


@dataclass(frozen=True, slots=True)
class Verdict:
    """One package version and the proxy's decision, as the rows' columns hold them."""

    package: str
    version: str
    event: str
    decision: str | None
    decision_reason: str
    envelope: dict[str, Any]
    payload: str


def verdict(package: str, version: str, envelope: Envelope) -> Verdict:
    """The verdict that `envelope` explains."""
    keys = msgspec.to_builtins(envelope)
    return Verdict(
        package=package,
        version=version,
        event=envelope.event,
        decision=None if envelope.decision is None else envelope.decision.value,
        decision_reason=decision_reason(keys),
        envelope=keys,
        payload=compact(keys),
    )


def blocked(rule: Rule) -> Verdict:
    """The proxy's verdict on a package on the blocklist."""
    envelope = BlocklistHit(rule_id=rule.rule_id, source=rule.source)
    return verdict(rule.package, rule.version, envelope)


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose newest version was published during the history."""

    older: tuple[Verdict, ...]
    newest: Verdict
    too_young: Verdict
    published_us: int
    mature_us: int
    too_young_share: float

    def asked_for(self, at_us: int, luck: float) -> Verdict:
        """The verdict on an install at `at_us`; `luck` (0 to 1) selects the version."""
        if at_us >= self.mature_us and luck < _ADOPTED_SHARE:
            return self.newest
        if self.published_us <= at_us < self.mature_us and luck < self.too_young_share:
            return self.too_young
        return self.older[int(luck * luck * len(self.older))]


@dataclass(frozen=True, slots=True)
class Market:
    """One ecosystem: public packages by popularity, and the organisation's own."""

    packages: tuple[Package, ...]
    first_party: tuple[Package, ...]

    def lockfile(self, chance: Random, size: int) -> list[Package]:
        """`size` packages that a job may install.

        Popular packages are in nearly every lockfile, the others in one or two.
        """
        own = max(1, round(size * _FIRST_PARTY_SHARE))
        ranked = sorted(
            enumerate(self.packages, start=1),
            key=lambda numbered: chance.expovariate(1 / numbered[0]),
        )
        chosen = [package for _, package in ranked[: size - own]]
        return chosen + chance.sample(self.first_party, min(own, len(self.first_party)))


def open_markets(profile: Profile, calendar: Calendar) -> Mapping[EcosystemName, Market]:
    """The ecosystems of `profile`, with releases spread over the history."""
    return {
        name: Market(
            packages=tuple(
                _package(profile, calendar, ecosystem, package, is_first_party=False)
                for package in ecosystem.packages
            ),
            first_party=tuple(
                _package(profile, calendar, ecosystem, package, is_first_party=True)
                for package in ecosystem.first_party
            ),
        )
        for name, ecosystem in profile.ecosystems.items()
    }


def _package(
    profile: Profile,
    calendar: Calendar,
    ecosystem: EcosystemEntry,
    name: str,
    *,
    is_first_party: bool,
) -> Package:
    versions = (ecosystem.first_party if is_first_party else ecosystem.packages)[name]
    allowed = OssFirstParty(registry=ecosystem.registry) if is_first_party else InstallAllowed()
    verdicts = tuple(verdict(name, version, allowed) for version in versions)
    min_age_days = 0 if is_first_party else profile.policy.min_age_days
    chance = seeded(profile.seed, "release", ecosystem.registry, name)
    published_us = to_us(calendar.opened_at) + int(
        chance.uniform(-min_age_days, HISTORY_DAYS - 1) * 86_400_000_000
    )
    cooldown = CooldownActive(
        published_at=format_ms(from_us(published_us)), min_age_days=min_age_days
    )
    return Package(
        older=verdicts[1:] or verdicts,
        newest=verdicts[0],
        too_young=verdict(name, versions[0], cooldown),
        published_us=published_us,
        mature_us=published_us + timedelta(days=min_age_days) // timedelta(microseconds=1),
        # A package with one version has no older one to install instead.
        too_young_share=profile.habits.too_young_share if len(versions) > 1 else 0.0,
    )
