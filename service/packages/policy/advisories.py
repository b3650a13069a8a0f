"""Advisories: which releases of a package an OSV record affects."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import ComparableVersion, InvalidVersion
from service.packages.intervals import FIRST, LAST, Cut, Interval, IntervalIndex
from service.packages.versions import (
    ExactVersions,
    after_builds,
    before,
    folded,
    parse_version,
    sort_key,
)

Boundary = tuple[str, str]
"""An event of an OSV range: `introduced`, `fixed`, `last_affected` or `limit`, and a version."""

# Order at one version: what is fixed may be introduced again; `last_affected` ends after it.
_ORDER: Final = {"fixed": 0, "introduced": 1, "last_affected": 2}
_EVERYTHING: Final = "0"
"""`introduced` of this value comes before every version, `0.0.0-alpha` among them (OSV schema)."""
_UNLIMITED: Final = "*"


class UnreadableRange(ValueError):
    """A boundary of a range is not a version in its ecosystem."""


class AdvisorySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a record says about one package, as it is stored."""

    versions: list[str] = []
    ranges: list[list[Boundary]] = []
    digests: list[str] = []


@dataclass(frozen=True, slots=True)
class AffectedRange:
    """The versions enclosed by the events of a range.

    `events` are sorted; a version of None comes before all others. `limits` bound the range from
    above; without any it is unlimited.
    """

    events: tuple[tuple[ComparableVersion | None, str], ...]
    limits: tuple[ComparableVersion, ...]

    @classmethod
    def of(cls, ecosystem: Ecosystem, boundaries: Iterable[Boundary]) -> Self:
        """The range with these events, given in any order. Raises UnreadableRange."""
        events: list[tuple[ComparableVersion | None, str]] = []
        limits: list[ComparableVersion] = []
        is_unlimited = False
        for kind, text in boundaries:
            if kind == "limit" and text == _UNLIMITED:
                is_unlimited = True
            elif kind == "limit":
                limits.append(_version(ecosystem, kind, text))
            elif kind == "introduced" and text == _EVERYTHING:
                events.append((None, kind))
            else:
                events.append((_version(ecosystem, kind, text), kind))
        return cls(_sorted(events), () if is_unlimited else tuple(limits))

    def intervals(self) -> Iterator[Interval]:
        """The affected versions: at each, the last event that it has reached counts.

        (OSV schema, evaluation)
        """
        end = max(map(before, self.limits), default=LAST)
        start: Cut | None = None
        last = 0
        for cut, number in sorted(
            (_reached(*event), place) for place, event in enumerate(self.events)
        ):
            last = max(last, number)
            is_affected = self.events[last][1] == "introduced"
            if is_affected and start is None:
                start = cut
            elif not is_affected and start is not None:
                if start < min(cut, end):
                    yield start, min(cut, end)
                start = None
        if start is not None and start < end:
            yield start, end


def _version(ecosystem: Ecosystem, kind: str, text: str) -> ComparableVersion:
    try:
        return parse_version(ecosystem, text)
    except InvalidVersion as error:
        raise UnreadableRange(f"{kind} {text[:64]}: {error}") from error


def _sorted(
    events: Sequence[tuple[ComparableVersion | None, str]],
) -> tuple[tuple[ComparableVersion | None, str], ...]:
    known = [event for event in events if event[0] is not None]
    known.sort(key=lambda event: (event[0], _ORDER[event[1]]))
    return (*(event for event in events if event[0] is None), *known)


def _reached(bound: ComparableVersion | None, kind: str) -> Cut:
    """The cut from which on a version has reached an event."""
    if bound is None:
        return FIRST
    # A local build of the last affected version is affected, too.
    return after_builds(bound) if kind == "last_affected" else before(bound)


@dataclass(frozen=True, slots=True)
class Advisory:
    """One record on one package. `fingerprint` changes whenever its contents do."""

    advisory_id: str
    fingerprint: str
    versions: ExactVersions
    ranges: tuple[AffectedRange, ...]
    digests: frozenset[str]

    @classmethod
    def of(cls, ecosystem: Ecosystem, advisory_id: str, spec: AdvisorySpec) -> Self:
        """The advisory that `spec` describes. Raises UnreadableRange."""
        return cls(
            advisory_id,
            hashlib.sha256(msgspec.json.encode(spec)).hexdigest(),
            ExactVersions.of(ecosystem, spec.versions),
            tuple(AffectedRange.of(ecosystem, boundaries) for boundaries in spec.ranges),
            frozenset(spec.digests),
        )

    @property
    def is_on_all_versions(self) -> bool:
        """Whether it affects each version; also if it says nothing of versions, but of files."""
        has_versions = self.ranges or self.versions.intervals or self.versions.unreadable
        return not has_versions or (FIRST, LAST) in self.intervals()

    def intervals(self) -> Iterator[Interval]:
        """The affected versions."""
        yield from self.versions.intervals
        for range_ in self.ranges:
            yield from range_.intervals()


class PackageAdvisories:
    """The advisories on one package, of which the first that affects a release is found.

    A look-up takes the same time for one advisory as for hundreds.
    """

    def __init__(self, advisories: Sequence[Advisory]) -> None:
        self._ids = [advisory.advisory_id for advisory in advisories]
        self._index = IntervalIndex([list(advisory.intervals()) for advisory in advisories])
        self._by_digest: dict[str, int] = {}
        self._by_text: dict[str, int] = {}
        # A version that cannot be read cannot be shown to lie outside a range.
        with_ranges = (number for number, each in enumerate(advisories) if each.ranges)
        self._first_with_ranges = next(with_ranges, None)
        for number, advisory in enumerate(advisories):
            for digest in advisory.digests:
                self._by_digest.setdefault(digest, number)
            for text in advisory.versions.unreadable:
                self._by_text.setdefault(text, number)
        contents = sorted((advisory.advisory_id, advisory.fingerprint) for advisory in advisories)
        self.fingerprint = hashlib.sha256(repr(contents).encode()).hexdigest()
        """Changes whenever an advisory does."""

    def __bool__(self) -> bool:
        """True if there is any."""
        return bool(self._ids)

    def first(
        self, text: str, version: ComparableVersion | None, digests: frozenset[str]
    ) -> str | None:
        """The id of the first advisory on a release with this version or one of these digests.

        `version` is None if `text` is not a version.
        """
        if version is None:
            numbers = [self._first_with_ranges, self._by_text.get(folded(text))]
        else:
            numbers = [self._index.first(sort_key(version))]
        numbers += map(self._by_digest.get, digests)
        number = min((each for each in numbers if each is not None), default=None)
        return None if number is None else self._ids[number]


NO_ADVISORIES: Final = PackageAdvisories(())
