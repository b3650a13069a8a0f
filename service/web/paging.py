"""Lists a page at a time: with `limit` and `cursor`, and `next_cursor` in the answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Self, TypeVar

import msgspec
from msgspec import Meta
from sqlalchemy import Select, and_, or_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from analytics.model.cursors import InvalidCursor, seal, unseal
from service.core.secrets import derive_key
from service.core.settings import Settings
from service.web.models import PageCursor, Request
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

    See `list_after`.
    """
    after = "" if query.cursor is None else cursors.decode(query.cursor)[0]
    rows, last = await list_after(load, key, query.find, after, query.limit)
    return rows, None if last is None else cursors.encode(last)


async def list_after(
    load: Callable[[str, str, int], Awaitable[Sequence[_Listed]]],
    key: Callable[[_Listed], str],
    find: str,
    after: str,
    limit: int,
) -> tuple[Sequence[_Listed], str | None]:
    """Up to `limit` rows that contain `find`, after the key `after`; and the last one's key.

    That is None if no row follows. `load` is given what the address or name of rows must contain,
    the `key` that they must come after, and their number.
    """
    rows = await load(find, after, limit + 1)
    shown = rows[:limit]
    return shown, key(shown[-1]) if len(rows) > limit else None


async def newest_page(
    session: AsyncSession,
    statement: Select[_Listed],
    order: tuple[InstrumentedAttribute[datetime], InstrumentedAttribute[str]],
    cursors: ListCursors,
    limit: int,
    cursor: str | None,
) -> tuple[Sequence[_Listed], str | None]:
    """The rows of `statement` behind `cursor`, newest first, and the next cursor, if rows follow.

    `order` are the columns of their time and of what tells rows of the same time apart. Raises
    INVALID_CURSOR.
    """
    at, name = order
    if cursor is not None:
        instant, last = cursors.decode(cursor)
        last_at = datetime.fromisoformat(instant)
        statement = statement.where(or_(at < last_at, and_(at == last_at, name < last)))
    newest_first = statement.order_by(at.desc(), name.desc())
    rows = (await session.scalars(newest_first.limit(limit + 1))).all()
    shown = rows[:limit]
    if len(rows) <= limit:
        return shown, None
    place = getattr(shown[-1], at.key).isoformat(), getattr(shown[-1], name.key)
    return shown, cursors.encode(*place)
