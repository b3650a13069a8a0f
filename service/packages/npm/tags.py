"""Where dist-tags point while some versions are blocked.

`npm install foo` follows the tag `latest` and never looks for another version. A tag whose version
is blocked therefore moves down, to a version that its users are likely to want:

1. the highest version of the same major that is not above the old one: stable ones alone, unless
   the tag pointed at a prerelease, as `next` does;
2. else the highest stable version of the next lower major that has one, and so on downwards.

Deprecated versions are considered only if there is no other. If no version is left, the tag stays
where it is: its file is refused with the reason, which says more than a missing tag.
"""

from collections.abc import Mapping

from service.packages.npm.document import NpmPackage
from service.packages.npm.versions import NpmVersion, find_strict_version, is_stable


def move_tags(package: NpmPackage, marks: Mapping[str, str]) -> dict[str, str]:
    """The package's dist-tags, moved from versions in `marks` wherever there is a replacement."""
    tags = package.tags
    if not any(version in marks for version in tags.values()):
        return tags
    allowed = [
        (parsed, version)
        for version in package.versions
        if version not in marks and (parsed := find_strict_version(version)) is not None
    ]
    preferred = [choice for choice in allowed if not package.versions[choice[1]].deprecated]
    return {
        tag: (_replacement(version, preferred) or _replacement(version, allowed) or version)
        if version in marks
        else version
        for tag, version in tags.items()
    }


def _replacement(blocked: str, choices: list[tuple[NpmVersion, str]]) -> str | None:
    """The version of `choices` to which a tag moves from `blocked`, or None."""
    old = find_strict_version(blocked)
    if old is None:
        return None
    below = [choice for choice in choices if choice[0] <= old]
    same_major = [
        choice
        for choice in below
        if choice[0][0] == old[0] and (is_stable(choice[0]) or not is_stable(old))
    ]
    stable = [choice for choice in below if is_stable(choice[0])]
    return max(same_major or stable, default=(None, None))[1]
