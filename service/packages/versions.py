"""Versions and ranges of each ecosystem behind one interface.

Two versions are equal here if the ecosystem's own client takes them for the same, however they are
spelled: `1.0`, `1.0.0` and `v1.0` on PyPI, `1.0.0` and `1.0.0+build` on npm.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion as InvalidPypiVersion
from packaging.version import Version as PypiVersion

from service.packages.ecosystems import Ecosystem
from service.packages.npm_versions import (
    InvalidNpmRange,
    InvalidNpmVersion,
    NpmVersion,
    parse_npm_range,
    parse_npm_version,
)

VERSION_MAX: Final = 256
"""Characters in a version, and in a range of versions."""

Version = PypiVersion | NpmVersion


class InvalidVersion(ValueError):
    """The text is not a version in its ecosystem."""


class InvalidRange(ValueError):
    """The text is not a range of versions in its ecosystem."""


class VersionRange(Protocol):
    """A set of versions of one ecosystem."""

    def contains(self, version: Version) -> bool:
        """True if `version`, of the same ecosystem, is in the set."""


def parse_version(ecosystem: Ecosystem, text: str) -> Version:
    """The version in `text`; it can be hashed, compared and sorted. Raises InvalidVersion."""
    if len(text) > VERSION_MAX:
        raise InvalidVersion(f"a version has at most {VERSION_MAX} characters")
    try:
        return PypiVersion(text) if ecosystem is Ecosystem.PYPI else parse_npm_version(text)
    except InvalidPypiVersion as error:
        raise InvalidVersion("not a version such as 1.2.3 or 1.2.3rc1 (PEP 440)") from error
    except InvalidNpmVersion as error:
        raise InvalidVersion(str(error)) from error


def without_local(version: Version) -> Version:
    """`version` without a PyPI local part: `1.0+cu118` is a build of `1.0` (PEP 440)."""
    if isinstance(version, PypiVersion) and version.local is not None:
        return PypiVersion(version.public)
    return version


def has_local(version: Version) -> bool:
    """True for a PyPI version with a local part."""
    return isinstance(version, PypiVersion) and version.local is not None


def parse_range(ecosystem: Ecosystem, text: str) -> VersionRange:
    """The range in `text`. Raises InvalidRange.

    PyPI: specifiers (PEP 440) such as `>=1.0,<2.0`; a version alone means `==`. Prereleases
    are included wherever the specifier itself allows them, and `==1.0` includes `1.0+local`. npm:
    its ranges, with prereleases.
    """
    if len(text) > VERSION_MAX:
        raise InvalidRange(f"a range has at most {VERSION_MAX} characters")
    if ecosystem is Ecosystem.PYPI:
        return _pypi_range(text)
    try:
        return parse_npm_range(text)  # type: ignore[return-value] # contains its own versions
    except InvalidNpmRange as error:
        raise InvalidRange(str(error)) from error


@dataclass(frozen=True, slots=True)
class _PypiRange:
    specifiers: SpecifierSet

    def contains(self, version: Version) -> bool:
        assert isinstance(version, PypiVersion)  # noqa: S101 - the callers' promise
        return self.specifiers.contains(version, prereleases=True)


def _pypi_range(text: str) -> VersionRange:
    try:
        return _PypiRange(SpecifierSet(f"=={PypiVersion(text)}"))
    except InvalidPypiVersion:
        pass
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise InvalidRange("not specifiers such as >=1.0,<2.0 (PEP 440)") from error
    if not specifiers or any(specifier.operator == "===" for specifier in specifiers):
        # `===` compares spellings: 1.0.0 would evade a rule with ===1.0.
        raise InvalidRange("give specifiers such as >=1.0,<2.0 (PEP 440); === is not accepted")
    return _PypiRange(specifiers)


@dataclass(frozen=True, slots=True)
class ExactVersions:
    """Listed versions. One without a local part includes all its local builds."""

    versions: frozenset[Version]
    unreadable: frozenset[str]
    """Texts that are not versions: verbatim, but in lower case and without outer white space."""

    @classmethod
    def of(cls, ecosystem: Ecosystem, texts: Iterable[str]) -> Self:
        """The versions in `texts`."""
        versions, unreadable = set[Version](), set[str]()
        for text in texts:
            try:
                versions.add(parse_version(ecosystem, text))
            except InvalidVersion:
                unreadable.add(_folded(text))
        return cls(frozenset(versions), frozenset(unreadable))

    def contains(self, version: Version) -> bool:
        """True if `version` or, if it is a local build, its public version is listed."""
        return version in self.versions or (
            has_local(version) and without_local(version) in self.versions
        )

    def contains_text(self, text: str) -> bool:
        """True if `text`, which is not a version, is listed."""
        return _folded(text) in self.unreadable


def _folded(text: str) -> str:
    return text.strip().lower()
