"""The ecosystems of packages."""

from enum import StrEnum


class Ecosystem(StrEnum):
    """The ecosystem of a package, by package URL type: the same name can exist in several."""

    PYPI = "pypi"
    NPM = "npm"
