"""Queries of `npm audit`, without the packages that the public registry must not learn about.

Such a query names every package of a project. A public registry has no advisories on packages from
an organisation's own registry, and their names would tell a stranger what to publish there.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from service.core.errors import Invalid
from service.packages.names import NamePattern, PatternIndex
from service.packages.proxy.answers import BodyFault, Gunzip

QUERIES: Final = frozenset({"advisories/bulk", "audits", "audits/quick"})
"""Below `/-/npm/v1/security/`."""

QUERY_BYTES_MAX: Final = 2**20
"""Of a query as sent: compressed, that is a project of tens of thousands of packages."""

UNPACKED_BYTES_MAX: Final = 8 * 2**20
NAMES_MAX: Final = 200_000
"""Names in a query, also repeated ones: older clients name each dependency of each package."""

DIFFERENT_CHARS_MAX: Final = 2**20
"""Characters of all different names, each of which is compared with first-party patterns: 30,000
packages with long names."""

AT_ONCE_BYTES: Final = 4096
"""A shorter query is read in the event loop."""

_DEPTH_MAX: Final = 200
_TREES: Final = ("dependencies", "requires")
_SPECIFIERS: Final = ("install", "remove")
"""What the command that asks adds and removes, as `name@range`: lists of older clients."""

Json = dict[str, Any]


def is_short(body: bytes, coding: str) -> bool:
    """True for a query that may be read in the event loop."""
    try:
        return len(_unpacked(body, coding, AT_ONCE_BYTES)) <= AT_ONCE_BYTES
    except BodyFault:
        return False


def public_query(body: bytes, coding: str, path: str, hidden: tuple[NamePattern, ...]) -> bytes:
    """The query in `body` for the endpoint `path`, as JSON and without the hidden packages.

    `coding` is its content coding. For a worker process: with all names that a query may have, and
    all patterns, it takes seconds. Raises Invalid.
    """
    query: Any
    try:
        query = msgspec.json.decode(_unpacked(body, coding, UNPACKED_BYTES_MAX))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BodyFault) as error:
        raise Invalid(f"the audit query cannot be read: {error}") from error
    if not isinstance(query, dict):
        raise Invalid("the audit query must be a JSON object")
    return _public(query, path, HiddenNames(_index(hidden)))


class HiddenNames:
    """Which names of one query are hidden. Each is looked up once, and how many is bounded."""

    def __init__(self, index: PatternIndex[None]) -> None:
        self._index = index
        self._known: dict[str, bool] = {}
        self._left = NAMES_MAX
        self._chars_left = DIFFERENT_CHARS_MAX

    def __call__(self, name: str) -> bool:
        """True if `name` is hidden. Raises Invalid for more names than a query may have."""
        self._left -= 1
        if self._left < 0:
            raise Invalid(
                f"the audit query names more than {NAMES_MAX} packages: audit parts of the project"
            )
        is_hidden = self._known.get(name)
        if is_hidden is None:
            self._chars_left -= len(name)
            if self._chars_left < 0:
                raise Invalid(
                    f"the audit query has more than {DIFFERENT_CHARS_MAX} characters of different"
                    " names: audit parts of the project"
                )
            is_hidden = self._known[name] = self._index.is_match(name)
        return is_hidden


@lru_cache(maxsize=8)
def _index(patterns: tuple[NamePattern, ...]) -> PatternIndex[None]:
    return PatternIndex((pattern, None) for pattern in patterns)


def _public(query: Json, path: str, is_hidden: Callable[[str], bool]) -> bytes:
    if path == "advisories/bulk":
        return msgspec.json.encode(_without(query, is_hidden))
    if isinstance(query.get("name"), str) and is_hidden(query["name"]):
        query = {key: value for key, value in query.items() if key != "name"}
    lists = {key: _public_only(query[key], is_hidden) for key in _SPECIFIERS if key in query}
    query = query | lists
    return msgspec.json.encode(_tree(query, is_hidden, _DEPTH_MAX))


def _tree(package: Json, is_hidden: Callable[[str], bool], depth: int) -> Json:
    """A package of a lockfile's tree: `requires` names others, `dependencies` contains them."""
    # A RecursionError, here or in the encoder, would be answered as a fault of the server.
    if depth == 0:
        raise Invalid("the audit query is nested too deeply")
    public = dict(package)
    for key in _TREES:
        names = public.get(key)
        if isinstance(names, dict):
            public[key] = {
                name: _tree(value, is_hidden, depth - 1) if isinstance(value, dict) else value
                for name, value in _without(names, is_hidden).items()
            }
    return public


def _public_only(specifiers: Any, is_hidden: Callable[[str], bool]) -> list[str]:  # noqa: ANN401 - JSON
    """Those of `specifiers` that name a public package; no other value could be checked."""
    listed = specifiers if isinstance(specifiers, list) else []
    return [text for text in listed if isinstance(text, str) and not is_hidden(_name_in(text))]


def _name_in(specifier: str) -> str:
    """The name in `left-pad@^1` or `@scope/name@1.0.0`, whose first `@` is part of it."""
    end = specifier.find("@", 1)
    return specifier if end < 0 else specifier[:end]


def _without(names: Json, is_hidden: Callable[[str], bool]) -> Json:
    return {name: value for name, value in names.items() if not is_hidden(name)}


def _unpacked(body: bytes, coding: str, bytes_max: int) -> bytes:
    """The query, of at most so many bytes. Raises BodyFault."""
    coding = coding.strip().lower()
    if coding in {"", "identity"}:
        return body
    if coding not in {"gzip", "x-gzip"}:
        raise BodyFault("its content coding must be gzip")
    unpacked, decoder = bytearray(), Gunzip()
    for piece in decoder.feed(body):
        unpacked += piece
        if len(unpacked) > bytes_max:
            raise BodyFault(f"it is longer than {bytes_max} bytes")
    if not decoder.is_complete:
        raise BodyFault("its gzip ends too early")
    return bytes(unpacked)
