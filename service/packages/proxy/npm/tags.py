"""Where dist-tags point while some versions are blocked.

`npm install foo` follows the tag `latest` and never looks for another version. A tag whose version
is blocked therefore moves down, to a version that its users are likely to want:

1. the highest version of the same major that is not above the old one: stable ones alone, unless
   the tag pointed at a prerelease, as `next` does;
2. else the highest stable version of the next lower major that has one, and so on downwards.

Deprecated versions are considered only if there is no other. If no version is left, the tag stays
where it is: its file is refused with the reason, which says more than a missing tag.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from service.packages.proxy.npm.document import NpmPackage

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


def move_tags(package: NpmPackage, marks: Mapping[str, str]) -> dict[str, str]:
    """The package's dist-tags, moved from versions in `marks` wherever there is a replacement."""
    tags = package.tags
    if not any(version in marks for version in tags.values()):
        return tags
    allowed = [
        (precedence, version)
        for version in package.versions
        if version not in marks and (precedence := parse_precedence(version)) is not None
    ]
    preferred = [choice for choice in allowed if not package.versions[choice[1]].deprecated]
    return {
        tag: (_replacement(version, preferred) or _replacement(version, allowed) or version)
        if version in marks
        else version
        for tag, version in tags.items()
    }


def _replacement(blocked: str, choices: list[tuple[Precedence, str]]) -> str | None:
    """The version of `choices` to which a tag moves from `blocked`, or None."""
    old = parse_precedence(blocked)
    if old is None:
        return None
    below = [choice for choice in choices if choice[0] <= old]
    same_major = [
        choice
        for choice in below
        if choice[0].major == old.major and (choice[0].is_stable or not old.is_stable)
    ]
    stable = [choice for choice in below if choice[0].is_stable]
    return max(same_major or stable, default=(None, None))[1]
