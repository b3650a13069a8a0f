"""npm's versions and ranges, as its client's semver reads them with `includePrerelease`."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from service.packages.ecosystem import InvalidRange, InvalidVersion
from service.packages.intervals import AFTER, BEFORE, FIRST, LAST, Interval

_NUMBER_MAX: Final = 2**53 - 1
"""The largest integer that npm's client holds exactly."""

TEXT_MAX: Final = 256
"""Characters in a version: npm's own limit."""

NpmVersion = tuple[int, int, int, tuple[Any, ...]]
"""A version as a key that sorts and compares as SemVer 2 orders versions (§11).

Major, minor, patch; then `(1,)` for a release, or 0 and the identifiers of a prerelease. Build
metadata is no part of it: `1.0.0+x` equals `1.0.0`.
"""

_RELEASE: Final = (1,)
_FIRST_PRERELEASE: Final = (0, (0, 0))
"""The prerelease `-0`, which comes before all others."""

_IDENTIFIER: Final = r"(?:[0-9]*[A-Za-z-][A-Za-z0-9-]*|{number})"
_BUILD: Final = r"(?:\+[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)?"
_STRICT_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_LOOSE_IDENTIFIER: Final = _IDENTIFIER.format(number="[0-9]+")
_STRICT_IDENTIFIER: Final = _IDENTIFIER.format(number=_STRICT_NUMBER)

# Loose, because npm reads versions in registries like this: `v1.2.3`, `=1.2.3`, `1.2.3beta`.
_VERSION: Final = re.compile(
    r"[v=\s]*([0-9]+)\.([0-9]+)\.([0-9]+)"
    rf"(?:-?({_LOOSE_IDENTIFIER}(?:\.{_LOOSE_IDENTIFIER})*))?{_BUILD}"
)
_STRICT: Final = re.compile(
    rf"{_STRICT_NUMBER}\.{_STRICT_NUMBER}\.{_STRICT_NUMBER}"
    rf"(?:-{_STRICT_IDENTIFIER}(?:\.{_STRICT_IDENTIFIER})*)?{_BUILD}"
)
_PART: Final = rf"({_STRICT_NUMBER}|[xX*])"
_PARTIAL: Final = (
    rf"v?{_PART}(?:\.{_PART}(?:\.{_PART}"
    rf"(?:-({_STRICT_IDENTIFIER}(?:\.{_STRICT_IDENTIFIER})*))?{_BUILD})?)?"
)
_COMPARATOR: Final = re.compile(rf"(\^|~>?|[<>]=?|=)?{_PARTIAL}")
_HYPHEN: Final = re.compile(rf"{_PARTIAL} - {_PARTIAL}")
_OPERATOR_SPACE: Final = re.compile(r"(?<![<>=~^])(\^|~>?|[<>]=?|=) ")

Comparator = tuple[Callable[[Any, Any], bool], NpmVersion]


def parse_npm_version(text: str) -> NpmVersion:
    """The version in `text`. Raises InvalidVersion."""
    match = _VERSION.fullmatch(text.strip()) if len(text) <= TEXT_MAX else None
    if match is None:
        raise InvalidVersion("not a version such as 1.2.3 or 1.2.3-rc.1")
    major, minor, patch = (int(number) for number in match.groups()[:3])
    if max(major, minor, patch) > _NUMBER_MAX:
        raise InvalidVersion(f"the numbers of a version are at most {_NUMBER_MAX}")
    return major, minor, patch, _prerelease(match[4])


def npm_spellings(text: str) -> Iterator[str]:
    """The version in `text` as registries have it: with and without build. Raises InvalidVersion.

    `1.2.3beta`, which npm reads as `1.2.3-beta`, is in some old packages.
    """
    major, minor, patch, prerelease = parse_npm_version(text)
    yield (spelling := text.strip().lstrip("v= \t"))
    yield spelling.partition("+")[0]
    tail = ".".join(str(part) for _, part in prerelease[1:])
    yield f"{major}.{minor}.{patch}{'-' if tail else ''}{tail}"


def find_strict_version(text: str) -> NpmVersion | None:
    """The version in `text`; None unless it has the form that SemVer 2 defines."""
    try:
        return parse_npm_version(text) if _STRICT.fullmatch(text) else None
    except InvalidVersion:
        return None


def is_stable(version: tuple[Any, ...]) -> bool:
    """True for a version that is no prerelease."""
    return bool(version[3] == _RELEASE)


def _prerelease(identifiers: str | None) -> tuple[Any, ...]:
    if identifiers is None:
        return _RELEASE
    return 0, *map(_identifier, identifiers.split("."))


def _identifier(text: str) -> tuple[int, int | float | str]:
    """Numbers come before words (SemVer 2, §11.4.3)."""
    if not text.isdecimal():
        return 1, text
    number = int(text)
    # npm compares longer numbers as floating point, so that neighbours are equal.
    return 0, number if number < _NUMBER_MAX else float(number)


def parse_npm_range(text: str) -> list[Interval]:
    """The versions in a range, prereleases included. Raises InvalidRange.

    Accepts npm's documented grammar. Refuses what npm accepts although it is meaningless (`>*`,
    `x.1`, a tag).
    """
    parts = " ".join(text.split()).split("||")
    alternatives = [_interval(_alternative(part.strip())) for part in parts]
    return [(start, end) for start, end in alternatives if start < end]


def _interval(comparators: Iterable[Comparator]) -> Interval:
    """What is between the highest lower and the lowest upper bound."""
    start, end = FIRST, LAST
    for compare, bound in comparators:
        if compare in {eq, ge, gt}:
            start = max(start, (bound, AFTER if compare is gt else BEFORE))
        if compare in {eq, le, lt}:
            end = min(end, (bound, BEFORE if compare is lt else AFTER))
    return start, end


def _alternative(text: str) -> tuple[Comparator, ...]:
    if match := _HYPHEN.fullmatch(text):
        return (*_lower(_Partial.of(match.groups()[:4])), *_upper(_Partial.of(match.groups()[4:])))
    comparators: list[Comparator] = []
    for part in _OPERATOR_SPACE.sub(r"\1", text).split():
        match = _COMPARATOR.fullmatch(part)
        if match is None:
            raise InvalidRange(f"not a range such as ^1.2.0, <2 or 1.x: {part[:64]}")
        comparators += _comparators(match[1] or "", _Partial.of(match.groups()[1:]))
    return tuple(comparators)


@dataclass(frozen=True, slots=True)
class _Partial:
    """A version whose last parts may be missing (None): `1`, `1.x`, `1.2.3-rc.1`."""

    major: int | None
    minor: int | None
    patch: int | None
    prerelease: tuple[Any, ...]

    @classmethod
    def of(cls, groups: Sequence[str | None]) -> "_Partial":
        numbers = [None if text in {None, "x", "X", "*"} else int(text or 0) for text in groups[:3]]
        known = [number for number in numbers if number is not None]
        if numbers[: len(known)] != known:
            raise InvalidRange("a number behind a wildcard means nothing")
        if max(known, default=0) >= _NUMBER_MAX:
            raise InvalidRange(f"the numbers of a version are below {_NUMBER_MAX}")
        major, minor, patch = numbers
        return cls(major, minor, patch, _prerelease(groups[3]) if patch is not None else _RELEASE)

    def first(self) -> NpmVersion:
        """The lowest version meant: a prerelease, unless exactly one version is meant."""
        if self.patch is None:
            return self.major or 0, self.minor or 0, 0, _FIRST_PRERELEASE
        return self.major or 0, self.minor or 0, self.patch, self.prerelease

    def after_major(self) -> NpmVersion:
        return (self.major or 0) + 1, 0, 0, _FIRST_PRERELEASE

    def after_minor(self) -> NpmVersion:
        return self.major or 0, (self.minor or 0) + 1, 0, _FIRST_PRERELEASE

    def after_patch(self) -> NpmVersion:
        return self.major or 0, self.minor or 0, (self.patch or 0) + 1, _FIRST_PRERELEASE

    def after(self) -> NpmVersion:
        """The first version after all those meant by `1` or `1.2`."""
        return self.after_major() if self.minor is None else self.after_minor()


def _comparators(operator: str, version: _Partial) -> list[Comparator]:
    if version.major is None:
        if operator in {"<", ">"}:
            raise InvalidRange("nothing is above or below every version")
        return []
    match operator:
        case "^":
            return [(ge, version.first()), (lt, _caret_end(version))]
        case "~" | "~>":
            return [(ge, version.first()), (lt, version.after())]
        case ">" if version.patch is None:
            return [(ge, version.after())]
        case "<=" if version.patch is None:
            return [(lt, version.after())]
        case "" | "=" if version.patch is None:
            return [(ge, version.first()), (lt, version.after())]
        case _:
            return [(_OPERATORS[operator], version.first())]


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "": eq,
    "=": eq,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _caret_end(version: _Partial) -> NpmVersion:
    """The first version with another leftmost nonzero number."""
    if version.major or version.minor is None:
        return version.after_major()
    if version.minor or version.patch is None:
        return version.after_minor()
    return version.after_patch()


def _lower(version: _Partial) -> list[Comparator]:
    """The lower bound in `A - B`: includes the prereleases of `A`, unless it is one itself."""
    if version.major is None:
        return []
    major, minor, patch, prerelease = version.first()
    return [
        (ge, (major, minor, patch, _FIRST_PRERELEASE if prerelease == _RELEASE else prerelease))
    ]


def _upper(version: _Partial) -> list[Comparator]:
    """The upper bound in `A - B`: everything that begins with `B`, or up to a prerelease `B`."""
    if version.major is None:
        return []
    if version.patch is None:
        return [(lt, version.after())]
    if version.prerelease != _RELEASE:
        return [(le, version.first())]
    return [(lt, version.after_patch())]
