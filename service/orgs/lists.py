"""Lists of what belongs to an organisation, a page at a time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, TypeVar

from msgspec import Meta
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.store.tables import Member, Organisation, Project, Team
from service.web.models import Request
from service.web.parameter_types import Cursor
from service.web.refusals import INVALID_CURSOR

LISTED_MAX: Final = 500
LISTED_DEFAULT: Final = 100
FIND_CHARS_MAX: Final = 255
"""No member's address is longer."""

_Listed = TypeVar("_Listed", Member, Team, Project)


class ListQuery(Request):
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
    cursor: Cursor | None = None


async def list_page(
    session: AsyncSession,
    org: Organisation,
    table: type[_Listed],
    query: ListQuery,
    load: Callable[[str, str, int], Awaitable[Sequence[_Listed]]],
) -> tuple[Sequence[_Listed], str | None]:
    """The rows that `query` selects, and the cursor of the next page. Raises INVALID_CURSOR.

    `load` is given what the address or name of rows must contain, the one that they must come
    after, and their number. A cursor is the id of the last row of the page before.
    """
    after = "" if query.cursor is None else await _key_of(session, org, table, query.cursor)
    rows = await load(query.find, after, query.limit + 1)
    shown = rows[: query.limit]
    return shown, shown[-1].id if len(rows) > len(shown) else None


async def _key_of(
    session: AsyncSession, org: Organisation, table: type[_Listed], row_id: str
) -> str:
    """What the list is sorted by, of the row with this id."""
    row = await session.scalar(select(table).where(table.id == row_id, table.tenant_id == org.id))
    if row is None:
        raise INVALID_CURSOR
    return row.email if isinstance(row, Member) else row.name
