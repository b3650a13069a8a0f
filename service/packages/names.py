"""Package names: one canonical spelling for each package, and patterns over canonical names."""

import re
from dataclasses import dataclass
from typing import Final

from service.packages.ecosystems import Ecosystem

NAME_MAX: Final = 214
"""Characters in a name, npm's own limit. No package of PyPI has a longer one."""

WILDCARDS_MAX: Final = 8
"""How many `*` a pattern may have."""

_PYPI: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PYPI_SEPARATORS: Final = re.compile(r"[-_.]+")
# Old packages of npm have capitals and the characters that a URL's path need not escape.
_NPM: Final = re.compile(
    r"(?:@[A-Za-z0-9_~!'()*-][\w.~!'()*-]*/[\w~!'()*-]|[A-Za-z0-9~!'()*-])[\w.~!'()*-]*", re.ASCII
)
_NPM_RESERVED: Final = frozenset({"node_modules", "favicon.ico"})
_PIECES: Final = {
    Ecosystem.PYPI: re.compile(r"[A-Za-z0-9._-]*"),
    Ecosystem.NPM: re.compile(r"[\w.~!'()@/-]*", re.ASCII),
}


class InvalidPackageName(ValueError):
    """The text is not a name, or not a pattern of names, in its ecosystem."""


def canonical_name(ecosystem: Ecosystem, name: str) -> str:
    """The one spelling of `name` that rules, caches and rows use.

    PyPI: lower case, with runs of `-`, `_` and `.` as one hyphen (PEP 503). npm: unchanged, since
    its names are case-sensitive. Raises InvalidPackageName.
    """
    if len(name) > NAME_MAX:
        raise InvalidPackageName(f"a package name has at most {NAME_MAX} characters")
    match ecosystem:
        case Ecosystem.PYPI:
            if not _PYPI.fullmatch(name):
                raise InvalidPackageName(
                    "a PyPI name has letters, digits and inner '-', '_' and '.' (PEP 508)"
                )
            return _normalised(name)
        case Ecosystem.NPM:
            if not _NPM.fullmatch(name) or name.lower() in _NPM_RESERVED:
                raise InvalidPackageName("an npm name is such as left-pad or @scope/left-pad")
            return name


def _normalised(text: str) -> str:
    return _PYPI_SEPARATORS.sub("-", text).lower()


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A name, or a glob in which `*` stands for any characters, the `/` of a scope included.

    `text` is canonical. `pieces` are the parts between the wildcards; a plain name is one piece.
    """

    text: str
    pieces: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """True for a plain name."""
        return len(self.pieces) == 1

    def matches(self, name: str) -> bool:
        """True if the canonical `name` matches. Takes time linear in its length per wildcard."""
        first, *inner = self.pieces
        if not inner:
            return name == first
        last = inner.pop()
        if not name.startswith(first):
            return False
        position = len(first)
        for piece in inner:
            position = name.find(piece, position)
            if position < 0:
                return False
            position += len(piece)
        # The last piece must not overlap those before it: `ab*ba` does not match `aba`.
        return len(name) - len(last) >= position and name.endswith(last)


def parse_pattern(ecosystem: Ecosystem, text: str) -> NamePattern:
    """The canonical form of a name or glob. Raises InvalidPackageName."""
    if "*" not in text:
        name = canonical_name(ecosystem, text)
        return NamePattern(name, (name,))
    if len(text) > NAME_MAX or text.count("*") > WILDCARDS_MAX:
        raise InvalidPackageName(
            f"a pattern has at most {NAME_MAX} characters and {WILDCARDS_MAX} wildcards"
        )
    if not all(_PIECES[ecosystem].fullmatch(piece) for piece in text.split("*")):
        raise InvalidPackageName(
            f"a pattern of {ecosystem} names has their characters and '*' for any others"
        )
    canonical = _normalised(text) if ecosystem is Ecosystem.PYPI else text
    return NamePattern(canonical, tuple(canonical.split("*")))
