"""Which release has weaker provenance than earlier ones of its package.

As pnpm's `trustPolicy: no-downgrade`: what counts is when releases were published, not their
versions, and a stable release is not compared with prereleases.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from service.packages.ecosystem import ComparableVersion, InvalidVersion, Provenance, Release
from service.packages.policy.rules import Rules
from service.packages.versions import is_prerelease, parse_version


class Evidence(NamedTuple):
    """The first release with this provenance, or a stronger one, for all of its files."""

    level: Provenance
    since: datetime
    version: str
    is_prerelease: bool


@dataclass(frozen=True, slots=True)
class PackageTrust:
    """The rule on one package. `evidence` is of the releases that its registry lists."""

    refuses: bool
    exempt: Rules
    ignore_after: timedelta | None
    evidence: tuple[Evidence, ...] = ()

    def among(self, releases: Iterable[Release]) -> Self:
        """The rule on releases among these, which are all that are listed."""
        return replace(self, evidence=tuple(_first_evidence(releases)))

    def stronger(
        self, release: Release, version: ComparableVersion | None, now: datetime
    ) -> Evidence | None:
        """The strongest provenance of earlier releases, if it is stronger than that of `release`.

        None for a release that the rule is not about.
        """
        level, at = release.provenance, release.published_at
        if level is None or self._is_exempt(version):
            return None
        if self.ignore_after is not None and at is not None and now - at >= self.ignore_after:
            return None
        with_prereleases = version is not None and is_prerelease(version)
        earlier = (
            each
            for each in self.evidence
            # A release without a date may be the newest.
            if each.level > level
            and (at is None or each.since < at)
            and (with_prereleases or not each.is_prerelease)
        )
        return max(earlier, default=None)

    def _is_exempt(self, version: ComparableVersion | None) -> bool:
        if version is None:
            return self.exempt.first_without_range() is not None
        return self.exempt.first(version) is not None


def _first_evidence(releases: Iterable[Release]) -> Iterable[Evidence]:
    """Of each level, the first stable release, and the first prerelease."""
    versions: dict[str, tuple[Provenance, datetime, Release]] = {}
    for release in releases:
        level, at = release.provenance, release.published_at
        if level is not None and at is not None and not release.is_withdrawn:
            # A release has what all of its files have: an attacker could add one.
            before = versions.get(release.version, (level, at, release))
            versions[release.version] = min(level, before[0]), min(at, before[1]), release
    first: dict[tuple[Provenance, bool], Evidence] = {}
    for level, since, release in versions.values():
        if level:
            is_early = _is_prerelease(release)
            evidence = Evidence(level, since, release.version, is_early)
            known = first.setdefault((level, is_early), evidence)
            if since < known.since:
                first[level, is_early] = evidence
    return first.values()


def _is_prerelease(release: Release) -> bool:
    try:
        return is_prerelease(parse_version(release.ecosystem, release.version))
    except InvalidVersion:
        return False
