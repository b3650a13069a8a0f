"""Advisories: which releases of a package an OSV record affects."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from service.packages.ecosystems import Ecosystem
from service.packages.versions import (
    ExactVersions,
    InvalidVersion,
    Version,
    has_local,
    parse_version,
    without_local,
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

    events: tuple[tuple[Version | None, str], ...]
    limits: tuple[Version, ...]

    @classmethod
    def of(cls, ecosystem: Ecosystem, boundaries: Iterable[Boundary]) -> Self:
        """The range with these events, given in any order. Raises UnreadableRange."""
        events: list[tuple[Version | None, str]] = []
        limits: list[Version] = []
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

    def contains(self, version: Version) -> bool:
        """True if `version` is affected (OSV schema, evaluation)."""
        if self.limits and not any(version < limit for limit in self.limits):  # type: ignore[operator]
            return False
        is_affected = False
        for bound, kind in self.events:
            if kind == "introduced":
                if bound is None or version >= bound:  # type: ignore[operator]
                    is_affected = True
            elif kind == "fixed":
                if version >= bound:  # type: ignore[operator]
                    is_affected = False
            elif _is_after(version, bound):
                is_affected = False
        return is_affected


def _version(ecosystem: Ecosystem, kind: str, text: str) -> Version:
    try:
        return parse_version(ecosystem, text)
    except InvalidVersion as error:
        raise UnreadableRange(f"{kind} {text[:64]}: {error}") from error


def _sorted(
    events: Sequence[tuple[Version | None, str]],
) -> tuple[tuple[Version | None, str], ...]:
    known = [event for event in events if event[0] is not None]
    known.sort(key=lambda event: (event[0], _ORDER[event[1]]))
    return (*(event for event in events if event[0] is None), *known)


def _is_after(version: Version, last: Version | None) -> bool:
    """True if `version` is above `last`; a local build of `last` itself is not."""
    if last is not None and not has_local(last):
        version = without_local(version)
    return last is not None and version > last  # type: ignore[operator]


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

    def affects(self, text: str, version: Version | None, digests: frozenset[str]) -> bool:
        """True for a release with this version or one of these digests.

        `version` is None if `text` is not a version: then every range affects the release, because
        it cannot be shown to lie outside.
        """
        if not self.digests.isdisjoint(digests):
            return True
        if version is None:
            return bool(self.ranges) or self.versions.contains_text(text)
        return self.versions.contains(version) or any(
            range_.contains(version) for range_ in self.ranges
        )
