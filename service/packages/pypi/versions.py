"""PyPI's versions and ranges, as PEP 440 defines them."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion as InvalidPypiVersion
from packaging.version import Version as PypiVersion

from service.packages.ecosystem import InvalidRange, InvalidVersion
from service.packages.intervals import AFTER, BEFORE, FIRST, LAST, Cut, Interval

_SEPARATORS: Final = re.compile(r"[-_.]")
_RELEASE_PARTS: Final = 3
_ALL_LOCALS: Final = ((2,),)
_ALL_POSTS: Final = (2,)
"""Above every local part, and every post-release, in a sort key."""


def parse_pypi_version(text: str) -> PypiVersion:
    """The version in `text`. Raises InvalidVersion."""
    try:
        return PypiVersion(text)
    except InvalidPypiVersion as error:
        raise InvalidVersion("not a version such as 1.2.3 or 1.2.3rc1 (PEP 440)") from error


def pypi_spellings(text: str) -> Iterator[str]:
    """Spellings of the version in `text`, of which a registry has one. Raises InvalidVersion.

    Zeros at the end of a release mean nothing: `2.10` is `2.10.0`.
    """
    version = parse_pypi_version(text)
    yield str(version)
    yield text.strip()
    release = trimmed(version.release)
    for length in range(max(1, len(release)), max(len(release), _RELEASE_PARTS) + 1):
        yield str(version.__replace__(release=release + (0,) * (length - len(release))))


def pypi_key(version: PypiVersion) -> tuple[Any, ...]:
    """The place of `version` in the order of PEP 440, see `service.packages.intervals`."""
    local = tuple(map(_local_part, _SEPARATORS.split(version.local))) if version.local else ()
    return *_public_key(version), local


def _public_key(version: PypiVersion) -> tuple[Any, ...]:
    """The order of PEP 440 without the local part, which comes last in it."""
    pre, post, dev = version.pre, version.post, version.dev
    release = trimmed(version.release)
    # 1.0.dev1 comes before the prereleases of 1.0; 1.0a1.dev1 and 1.0.post1.dev1 do not.
    before_all = pre is None and post is None and dev is not None
    pre_key = (0,) if before_all else (2,) if pre is None else (1, *pre)
    return (
        version.epoch,
        release,
        pre_key,
        (0,) if post is None else (1, post),
        (1,) if dev is None else (0, dev),
    )


def trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    """`release` without zeros at its end, which mean nothing."""
    end = len(release)
    while end and not release[end - 1]:
        end -= 1
    return release[:end]


def _local_part(text: str) -> tuple[int, int | str]:
    """Words come before numbers."""
    return (1, int(text)) if text.isdecimal() else (0, text)


def after_local_builds(version: PypiVersion) -> Cut:
    """The cut after `version` and, unless it is one itself, its local builds."""
    if version.local is not None:
        return pypi_key(version), AFTER
    return (*_public_key(version), _ALL_LOCALS), BEFORE


def parse_pypi_range(text: str) -> Iterator[Interval]:
    """The versions that specifiers such as `>=1.0,<2.0` include; a version alone means `==`.

    Prereleases are included wherever the specifier itself allows them, and `==1.0` includes
    `1.0+local`. Raises InvalidRange.
    """
    return _intervals(_specifiers(text))


def _specifiers(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(f"=={PypiVersion(text)}")
    except InvalidPypiVersion:
        pass
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise InvalidRange("not specifiers such as >=1.0,<2.0 (PEP 440)") from error
    if not specifiers or any(specifier.operator == "===" for specifier in specifiers):
        # `===` compares spellings: 1.0.0 would evade a rule with ===1.0.
        raise InvalidRange("give specifiers such as >=1.0,<2.0 (PEP 440); === is not accepted")
    return specifiers


def _intervals(specifiers: Iterable[Specifier]) -> Iterator[Interval]:
    """The versions that all of `specifiers` include: one interval with gaps for what is not."""
    start, end = FIRST, LAST
    gaps: list[Interval] = []
    for specifier in specifiers:
        first, last = _interval(specifier.operator, specifier.version)
        if specifier.operator == "!=":
            gaps.append((first, last))
        else:
            start, end = max(start, first), min(end, last)
    for first, last in sorted(gaps):
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end


def _interval(operator: str, text: str) -> Interval:
    """What one specifier includes; for `!=` what it does not."""
    if text.endswith(".*"):
        prefix = PypiVersion(text.removesuffix(".*"))
        return _first_of(prefix, 0), _first_of(prefix, 1)
    version = PypiVersion(text)
    at = (pypi_key(version), BEFORE)
    match operator:
        case ">=":
            return at, LAST
        case "<=":
            return FIRST, after_local_builds(version)
        case ">":
            return _above(version), LAST
        case "<":
            # Without the prereleases of the version, unless it is one.
            bound = version if version.is_prerelease else version.__replace__(dev=0, local=None)
            return FIRST, (pypi_key(bound), BEFORE)
        case "~=":
            prefix = version.__replace__(release=version.release[:-1])
            return at, _first_of(prefix, 1)
        case _:
            return at, after_local_builds(version)


def _first_of(prefix: PypiVersion, step: int) -> Cut:
    """The cut before all versions of which the release begins like `prefix`, or the next one."""
    *rest, last = prefix.release
    return (prefix.epoch, trimmed((*rest, last + step))), BEFORE


def _above(version: PypiVersion) -> Cut:
    """After a version, its local builds and, unless it is one itself, its post-releases."""
    epoch, release, pre, post, dev = _public_key(version)
    if version.dev is None and version.post is None:
        return (epoch, release, pre, _ALL_POSTS), BEFORE
    return (epoch, release, pre, post, dev, _ALL_LOCALS), BEFORE
