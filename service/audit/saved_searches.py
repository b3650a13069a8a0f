"""Saved searches of the audit log: which filters they may have, their rows and their endpoints."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlencode

import msgspec
from msgspec import Meta
from sqlalchemy import delete as delete_from
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.filters import InvalidQuery, only, parse_query
from service.access.roles import Capability
from service.audit.search import WINDOW, check_window
from service.audit.services import AuditServices
from service.core.errors import Conflict, Invalid, NotFound, parse_both
from service.core.ids import new_id
from service.core.text_rules import NAME_MAX, check_name, is_encodable
from service.store.tables import SavedSearch
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Parsed, Request, TimestampUs

SEARCH_NOT_FOUND: Final = NotFound.of("Saved search not found for this org")
SEARCH_EXISTS: Final = Conflict.of("a saved search of this name exists", field="name")

QUERY_CHARS_MAX: Final = 4 * 1024
SEARCHES_MAX: Final = 100
"""How many one organisation may have; SPEC sets no number."""
TOO_MANY_SEARCHES: Final = Conflict.of(
    "limit of {limit} saved searches reached: delete one first", limit=SEARCHES_MAX
)

COLUMNS: Final = "columns"
"""The page's choice of columns, which a saved search keeps."""

SQL: Final = "sql"
"""In place of filters: a statement."""

resource = Resource("searches", "/audit/searches", Tag.SEARCHES, AuditServices)


class SavedSearchRequest(Request):
    """A search to save."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_MAX})]
    query: Annotated[
        str,
        Meta(
            description="Filters as in an address of the audit page, `last` among them; or `sql=`"
            " and a statement, as in one of the SQL page.",
            extra_json_schema={"maxLength": QUERY_CHARS_MAX},
        ),
    ]


class SavedSearchEntry(Answer):
    """A saved search."""

    id: str
    name: str
    query: str
    created_by: str
    created_at: TimestampUs


class SavedSearchList(Answer):
    """The organisation's saved searches, by name."""

    org: str
    searches: list[SavedSearchEntry]


class DeletedSearch(Answer):
    """The id of the search that was deleted."""

    deleted: str


def parse_new_search(given: dict[str, Any]) -> SavedSearchRequest:
    """The search in a request's body, with its query in the canonical form. Raises Invalid."""
    new = SavedSearchRequest.parse(given)
    _, query = parse_both(partial(check_name, new.name), partial(parse_saved_query, new.query))
    return msgspec.structs.replace(new, query=query)


@resource.get("list_saved_searches", needs=Capability.AUDIT_READ, returns=SavedSearchList)
async def list_(call: Call[AuditServices]) -> SavedSearchList:
    """List the organisation's saved searches, by name."""
    async with call.read() as session:
        searches = await list_searches(session, call.org.id)
    return SavedSearchList(
        org=call.org.slug, searches=[SavedSearchEntry.from_row(search) for search in searches]
    )


@resource.post(
    "save_search",
    needs=Capability.AUDIT_READ,
    body=Parsed(SavedSearchRequest, parse_new_search),
    example={"name": "Blocked this week", "query": "decision=BLOCKED&last=7d"},
    returns=SavedSearchEntry,
    status=201,
    refuses=[SEARCH_EXISTS, TOO_MANY_SEARCHES],
)
async def create(call: WriteCall[AuditServices], new: SavedSearchRequest) -> SavedSearchEntry:
    """Save a search for everyone in the organisation who may read its audit log."""
    mine = select(func.count()).where(SavedSearch.tenant_id == call.org.id)
    if (await call.session.scalar(mine) or 0) >= SEARCHES_MAX:
        raise TOO_MANY_SEARCHES(limit=SEARCHES_MAX)
    search = SavedSearch(
        id=new_id("search"),
        tenant_id=call.org.id,
        name=new.name,
        query=new.query,
        created_by=call.by.actor,
        created_at=call.work.now,
    )
    call.session.add(search)
    try:
        await call.session.flush()
    except IntegrityError as error:
        raise SEARCH_EXISTS from error
    return SavedSearchEntry.from_row(search)


@resource.delete(
    "delete_saved_search",
    "/<search_id>",
    needs=Capability.AUDIT_READ,
    returns=DeletedSearch,
    refuses=[SEARCH_NOT_FOUND],
)
async def delete(call: WriteCall[AuditServices], search_id: str) -> DeletedSearch:
    """Delete a saved search of the organisation."""
    mine = delete_from(SavedSearch).where(
        SavedSearch.tenant_id == call.org.id, SavedSearch.id == search_id
    )
    if (await call.session.execute(mine.returning(SavedSearch.id))).scalar() is None:
        raise SEARCH_NOT_FOUND
    return DeletedSearch(deleted=search_id)


async def list_searches(
    session: AsyncSession, tenant_id: str, is_sql: bool | None = None
) -> Sequence[SavedSearch]:
    """The organisation's saved searches, by name; with `is_sql` those of that kind."""
    mine = select(SavedSearch).where(SavedSearch.tenant_id == tenant_id)
    if is_sql is not None:
        mine = mine.where(SavedSearch.query.startswith(f"{SQL}=") == is_sql)
    return (await session.scalars(mine.order_by(SavedSearch.name))).all()


def parse_saved_query(text: str) -> str:
    """The canonical form of a query string of filters: `package=left-pad&last=7d`.

    Raises Invalid, with the field `query`.
    """
    if len(text) > QUERY_CHARS_MAX:
        raise Invalid(f"query must be at most {QUERY_CHARS_MAX} characters", field="query")
    if not is_encodable(text):
        raise Invalid("query must be text without lone surrogates", field="query")
    try:
        parameters = parse_qs(text.removeprefix("?"), keep_blank_values=True, strict_parsing=True)
        _check(parameters)
    except ValueError as error:  # InvalidQuery is one
        raise Invalid(
            f"query must be filters such as package=left-pad: {error}", field="query"
        ) from error
    return urlencode(parameters, doseq=True)


def _check(parameters: Mapping[str, Sequence[str]]) -> None:
    if not parameters:
        raise InvalidQuery("there is none")
    if parameters.keys() == {SQL} and only(parameters, SQL):
        return
    check_window(only(parameters, WINDOW))
    filters = {name: each for name, each in parameters.items() if name not in {WINDOW, COLUMNS}}
    if WINDOW in parameters and filters.keys() & {"since", "until"}:
        raise InvalidQuery("last excludes since and until")
    parse_query(filters)
