"""The order of npm versions (Semantic Versioning 2.0.0, §11), for choosing dist-tags."""

import re
from typing import Final, NamedTuple

_NUMBER: Final = "(?:0|[1-9][0-9]{0,15})"
_IDENTIFIER: Final = f"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<prerelease>{_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_VERSION_CHARS_MAX: Final = 256


class Precedence(NamedTuple):
    """Compares as versions do; build metadata is ignored."""

    major: int
    minor: int
    patch: int
    is_stable: bool
    prerelease: tuple[tuple[bool, int, str], ...]


def parse_precedence(version: str) -> Precedence | None:
    """The precedence of `version`; None if it is not a version in strict form."""
    match = _VERSION.fullmatch(version) if len(version) <= _VERSION_CHARS_MAX else None
    if match is None:
        return None
    prerelease = match["prerelease"]
    return Precedence(
        int(match["major"]),
        int(match["minor"]),
        int(match["patch"]),
        prerelease is None,
        tuple(map(_identifier, prerelease.split("."))) if prerelease else (),
    )


def _identifier(identifier: str) -> tuple[bool, int, str]:
    """Numbers compare by value and precede all other identifiers, which compare as ASCII."""
    if identifier.isdecimal():
        return False, int(identifier), ""
    return True, 0, identifier
