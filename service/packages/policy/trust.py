"""Which release has weaker provenance than earlier ones of its package.

As pnpm's `trustPolicy: no-downgrade`: what counts is when releases were published, not their
versions, and a stable release is not compared with prereleases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Final, Self

from service.packages.ecosystem import ComparableVersion, Provenance, Release
from service.packages.policy.rules import Rules
from service.packages.versions import find_version, is_prerelease

SETTLED: Final = timedelta(days=30)
"""For how long a publisher must have been in use before others are compared with it: else the
second release after a takeover would be as good as the releases before it."""


@dataclass(frozen=True, slots=True)
class PackageTrust:
    """The rule on one package, and what its registry lists.

    `evidence` is of each level the first stable release, and the first prerelease, which is marked.
    """

    refuses: bool
    exempt: Rules
    ignore_after: timedelta | None
    evidence: tuple[tuple[bool, Release], ...] = ()
    listed: Mapping[str, Release] = field(default_factory=dict)

    def among(self, releases: Iterable[Release]) -> Self:
        """The rule on releases among these, which are all that are listed."""
        listed = _listed(releases)
        return replace(self, listed=listed, evidence=tuple(_first_evidence(listed.values())))

    def as_listed(self, release: Release) -> Release:
        """`release` with what the registry says of its provenance, and of its date if asked."""
        listed = self.listed.get(release.version, release)
        return replace(listed, published_at=release.published_at or listed.published_at)

    def stronger(
        self, release: Release, version: ComparableVersion | None, now: datetime
    ) -> Release | None:
        """The earlier release of the strongest provenance, if it is stronger than of `release`.

        None for a release that the rule is not about.
        """
        level, at = release.provenance, release.published_at
        if level is None or self.is_exempt(release, version, now):
            return None
        with_prereleases = version is not None and is_prerelease(version)
        earlier = (
            each
            for is_early, each in self.evidence
            # A release without a date may be the newest.
            if (each.provenance or 0) > level
            and (not at or not each.published_at or each.published_at < at)
            and (with_prereleases or not is_early)
        )
        return max(earlier, key=attrgetter("provenance", "published_at"), default=None)

    def earlier_attested(self, release: Release, now: datetime) -> Release | None:
        """The file whose publisher that of `release` must be: the last one SETTLED before.

        If there is none, the first one before. None for a release that the rule is not about.
        """
        version = find_version(release.ecosystem, release.version)
        if release.attestation is None or self.is_exempt(release, version, now):
            return None
        at = release.published_at or now
        attested = [(e.published_at, e) for e in self.listed.values() if e.attestation]
        earlier = [(since, each) for since, each in attested if since and since < at]
        earlier.sort(key=itemgetter(0))
        settled = [(since, each) for since, each in earlier if at - since >= SETTLED]
        return next((each for _, each in settled[-1:] or earlier[:1]), None)

    def is_exempt(self, release: Release, version: ComparableVersion | None, now: datetime) -> bool:
        """True if the rule is not about the release."""
        at, after, exempt = release.published_at, self.ignore_after, self.exempt
        if after is not None and at is not None and now - at >= after:
            return True
        return exempt.first_proven(version) is not None


def _listed(releases: Iterable[Release]) -> dict[str, Release]:
    """Each version that is not yanked: as old as its first file, with what all files have."""
    listed: dict[str, Release] = {}
    for each in releases:
        if each.provenance is not None and each.published_at and not each.is_yanked:
            before = listed.setdefault(each.version, each)
            if before is each:
                continue
            # One file without provenance may be of anyone.
            weakest = min(before, each, key=attrgetter("provenance"))
            first = min(before, each, key=attrgetter("published_at"))
            listed[each.version] = replace(weakest, published_at=first.published_at)
    return listed


def _first_evidence(listed: Iterable[Release]) -> Iterable[tuple[bool, Release]]:
    first: dict[tuple[Provenance | None, bool], Release] = {}
    for each in sorted(filter(attrgetter("provenance"), listed), key=attrgetter("published_at")):
        version = find_version(each.ecosystem, each.version)
        is_early = version is not None and is_prerelease(version)
        first.setdefault((each.provenance, is_early), each)
    return ((is_early, each) for (_, is_early), each in first.items())
