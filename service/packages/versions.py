"""Versions and ranges of each ecosystem behind one interface.

Two versions are equal here if the ecosystem's own client takes them for the same, however they are
spelled: `1.0`, `1.0.0` and `v1.0` on PyPI, `1.0.0` and `1.0.0+build` on npm.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import ComparableVersion, InvalidRange, InvalidVersion
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.intervals import AFTER, BEFORE, Cut, Interval, contains
from service.packages.npm.versions import is_stable
from service.packages.pypi.versions import after_local_builds, pypi_key

VERSION_MAX: Final = 256
"""Characters in a version, and in a range of versions."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A set of versions of one ecosystem."""

    intervals: tuple[Interval, ...]

    def contains(self, version: ComparableVersion) -> bool:
        """True if `version`, of the same ecosystem, is in the set."""
        return contains(self.intervals, sort_key(version))


def parse_version(ecosystem: Ecosystem, text: str) -> ComparableVersion:
    """The version in `text`; it can be hashed, compared and sorted. Raises InvalidVersion."""
    if len(text) > VERSION_MAX:
        raise InvalidVersion(f"a version has at most {VERSION_MAX} characters")
    return ECOSYSTEMS[ecosystem].parse_version(text)


def find_version(ecosystem: Ecosystem, text: str) -> ComparableVersion | None:
    """The version in `text`; None if it cannot be read."""
    try:
        return parse_version(ecosystem, text)
    except InvalidVersion:
        return None


def parse_range(ecosystem: Ecosystem, text: str) -> VersionRange:
    """The range in `text`, in the ecosystem's own form. Raises InvalidRange."""
    if len(text) > VERSION_MAX:
        raise InvalidRange(f"a range has at most {VERSION_MAX} characters")
    return VersionRange(tuple(ECOSYSTEMS[ecosystem].parse_range(text)))


def sort_key(version: ComparableVersion) -> tuple[Any, ...]:
    """The place of `version` among those of its ecosystem, see `service.packages.intervals`."""
    return version if isinstance(version, tuple) else pypi_key(version)


def is_prerelease(version: ComparableVersion) -> bool:
    """True for a version that ranges leave out, unless there is no other."""
    return not is_stable(version) if isinstance(version, tuple) else version.is_prerelease


def before(version: ComparableVersion) -> Cut:
    """The cut before `version`."""
    return sort_key(version), BEFORE


def after_builds(version: ComparableVersion) -> Cut:
    """The cut after `version` and, unless it is one itself, its local builds."""
    return (version, AFTER) if isinstance(version, tuple) else after_local_builds(version)


@dataclass(frozen=True, slots=True)
class ExactVersions:
    """Listed versions. One without a local part includes all its local builds."""

    intervals: tuple[Interval, ...]
    unreadable: frozenset[str]
    """Texts that are not versions, as `folded`."""

    @classmethod
    def of(cls, ecosystem: Ecosystem, texts: Iterable[str]) -> Self:
        """The versions in `texts`."""
        versions, unreadable = set[ComparableVersion](), set[str]()
        for text in texts:
            try:
                versions.add(parse_version(ecosystem, text))
            except InvalidVersion:
                unreadable.add(folded(text))
        intervals = ((before(version), after_builds(version)) for version in versions)
        return cls(tuple(intervals), frozenset(unreadable))


def folded(text: str) -> str:
    """A text that is not a version: in lower case and without outer white space."""
    return text.strip().lower()
