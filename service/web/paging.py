"""Lists a page at a time: with `limit` and `cursor`, and `next_cursor` in the answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Self, TypeVar

import msgspec
from msgspec import Meta

from analytics.model.cursors import InvalidCursor, seal, unseal
from service.core.secrets import derive_key
from service.core.settings import Settings
from service.web.models import Request
from service.web.parameter_types import PageCursor
from service.web.refusals import INVALID_CURSOR


@dataclass(frozen=True, slots=True)
class ListCursors:
    """The cursors of one list, `scope`: opaque, signed, and good for no other list."""

    key: bytes = field(repr=False)
    scope: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, *scope: str) -> Self:
        """The cursors of the list that `scope` names: what is listed, of whom, which part."""
        return cls(derive_key(settings.secret_key, "list cursor"), scope)

    def encode(self, *place: str) -> str:
        """A cursor behind `place`: what the list is sorted by, of the last row shown."""
        return seal(msgspec.msgpack.encode(place), self.key, msgspec.json.encode(self.scope))

    def decode(self, text: str) -> list[str]:
        """The place that the cursor `text` was made for. Raises INVALID_CURSOR."""
        try:
            body = unseal(text, self.key, msgspec.json.encode(self.scope))
        except InvalidCursor as error:
            raise INVALID_CURSOR from error
        return msgspec.msgpack.decode(body, type=list[str])


LISTED_MAX: Final = 500
LISTED_DEFAULT: Final = 100
FIND_CHARS_MAX: Final = 255
"""No member's address is longer."""

_Listed = TypeVar("_Listed")


class PageQuery(Request):
    """Which part of a list."""

    find: Annotated[
        str,
        Meta(
            max_length=FIND_CHARS_MAX,
            description="Only those whose name or address contains this, in any case.",
        ),
    ] = ""
    limit: Annotated[
        int,
        Meta(ge=1, le=LISTED_MAX, description=f"At most so many; default {LISTED_DEFAULT}."),
    ] = LISTED_DEFAULT
    cursor: PageCursor | None = None


async def list_page(
    cursors: ListCursors,
    query: PageQuery,
    load: Callable[[str, str, int], Awaitable[Sequence[_Listed]]],
    key: Callable[[_Listed], str],
) -> tuple[Sequence[_Listed], str | None]:
    """The rows that `query` selects, and the cursor of the next page. Raises INVALID_CURSOR.

    `load` is given what the address or name of rows must contain, the `key` that they must come
    after, and their number.
    """
    after = "" if query.cursor is None else cursors.decode(query.cursor)[0]
    rows = await load(query.find, after, query.limit + 1)
    shown = rows[: query.limit]
    return shown, cursors.encode(key(shown[-1])) if len(rows) > len(shown) else None
