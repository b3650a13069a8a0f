"""Queries of `npm audit`, without the packages that the public registry must not learn about.

Such a query names every package of a project. A public registry has no advisories on packages from
an organisation's own registry, and their names would tell a stranger what to publish there.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from service.errors import Invalid
from service.proxy.bodies import BodyFault, Gunzip

QUERIES: Final = frozenset({"advisories/bulk", "audits", "audits/quick"})
"""Below `/-/npm/v1/security/`."""

QUERY_BYTES_MAX: Final = 2**20
"""Of a query as sent: compressed, that is a project of tens of thousands of packages."""

UNPACKED_BYTES_MAX: Final = 8 * 2**20
_DEPTH_MAX: Final = 200
_TREES: Final = ("dependencies", "requires")
_SPECIFIERS: Final = ("install", "remove")
"""What the command that asks adds and removes, as `name@range`: lists of older clients."""

Json = dict[str, Any]


def parse_query(body: bytes, coding: str) -> Json:
    """The query in `body`, whose content coding is `coding`. Raises Invalid."""
    query: Any
    try:
        query = msgspec.json.decode(_unpacked(body, coding.strip().lower()))
    except (msgspec.DecodeError, RecursionError, BodyFault) as error:
        raise Invalid(f"the audit query cannot be read: {error}") from error
    if not isinstance(query, dict):
        raise Invalid("the audit query must be a JSON object")
    return query


def public_query(query: Json, path: str, is_hidden: Callable[[str], bool]) -> bytes:
    """`query` for the endpoint `path`, as JSON and without the hidden packages."""
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


def _unpacked(body: bytes, coding: str) -> bytes:
    if coding in {"", "identity"}:
        return body
    if coding not in {"gzip", "x-gzip"}:
        raise BodyFault("its content coding must be gzip")
    unpacked, decoder = bytearray(), Gunzip()
    for piece in decoder.feed(body):
        unpacked += piece
        if len(unpacked) > UNPACKED_BYTES_MAX:
            raise BodyFault(f"it is longer than {UNPACKED_BYTES_MAX} bytes")
    if not decoder.is_complete:
        raise BodyFault("its gzip ends too early")
    return bytes(unpacked)
