"""The project, version and kind of a distribution, from its file name.

Clients choose files by these three, so policy must interpret a name exactly as clients do. Wheels
follow the binary distribution format, and sdists are parsed as by pip. All other names (eggs,
installers, ambiguous names) are refused: no current client installs them.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

FILENAME_CHARS_MAX: Final = 512

_FILENAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_PROJECT: Final = re.compile("[a-z0-9]+(?:-[a-z0-9]+)*")
_WHEEL: Final = re.compile(r"(?P<release>.+)-(?P<tags>[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+){2})\.whl")
_SDIST_SUFFIXES: Final = (".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz")
"""Suffixes that pip and uv still install; new sdists are `.tar.gz` (PEP 625)."""


class DistributionKind(StrEnum):
    """How a distribution is packed."""

    WHEEL = "wheel"
    SDIST = "sdist"


class Distribution(NamedTuple):
    """`project` is normalised (PEP 503), `version` as PEP 440 writes it: `1.0-1` is `1.0.post1`."""

    project: str
    version: str
    kind: DistributionKind


def parse_filename(filename: str) -> Distribution | None:
    """The distribution that `filename` names; None unless that is an unambiguous wheel or sdist."""
    if len(filename) > FILENAME_CHARS_MAX or not _FILENAME.fullmatch(filename):
        return None
    if wheel := _WHEEL.fullmatch(filename):
        return _parse_wheel(wheel["release"])
    for suffix in _SDIST_SUFFIXES:
        if filename.endswith(suffix):
            return _parse_sdist(filename.removesuffix(suffix))
    return None


# The wheels of a release differ only in their tags. Parsing tags takes most of the time, and which
# they are does not matter here: clients choose among them.
@lru_cache(maxsize=4096)
def _parse_wheel(release: str) -> Distribution | None:
    try:
        name, version, _, _ = parse_wheel_filename(f"{release}-py3-none-any.whl")
    except InvalidWheelFilename:
        return None
    return _distribution(name, version, DistributionKind.WHEEL)


@lru_cache(maxsize=4096)
def _parse_sdist(stem: str) -> Distribution | None:
    try:
        name, version = parse_sdist_filename(f"{stem}.tar.gz")
    except InvalidSdistFilename:
        return None
    return _distribution(name, version, DistributionKind.SDIST)


def _distribution(project: str, version: Version, kind: DistributionKind) -> Distribution | None:
    # `parse_sdist_filename` also splits names that no project has, such as `-1.0.tar.gz`.
    return Distribution(project, str(version), kind) if _PROJECT.fullmatch(project) else None
