"""Lists of what belongs to an organisation, a page at a time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, TypeVar

from msgspec import Meta

from service.store.tables import Member, Project, Team
from service.web.models import Request
from service.web.paging import ListCursors
from service.web.parameter_types import Cursor

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
    cursors: ListCursors,
    query: ListQuery,
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
