"""Saved searches: which filters they may have, and their rows in the database."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, urlencode

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.filters import InvalidQuery, only, parse_query
from service.audit.windows import WINDOW, check_window
from service.core.errors import Invalid, SearchExists, SearchNotFound, TooManySearches
from service.core.ids import new_id
from service.core.text_rules import check_name, is_encodable
from service.store.store import UnitOfWork
from service.store.tables import Organisation, SavedSearch

QUERY_CHARS_MAX: Final = 4 * 1024
SEARCHES_MAX: Final = 100
"""How many one organisation may have; SPEC sets no number."""

COLUMNS: Final = "columns"
"""The page's choice of columns, which a saved search keeps."""


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
    check_window(only(parameters, WINDOW))
    filters = {name: each for name, each in parameters.items() if name not in {WINDOW, COLUMNS}}
    if WINDOW in parameters and filters.keys() & {"since", "until"}:
        raise InvalidQuery("last excludes since and until")
    parse_query(filters)


async def list_searches(session: AsyncSession, tenant_id: str) -> Sequence[SavedSearch]:
    """The organisation's saved searches, by name."""
    mine = select(SavedSearch).where(SavedSearch.tenant_id == tenant_id)
    return (await session.scalars(mine.order_by(SavedSearch.name))).all()


async def save_search(
    work: UnitOfWork, org: Organisation, name: str, query: str, actor: str
) -> SavedSearch:
    """Save a search. Raises Invalid, SearchExists, TooManySearches."""
    check_name(name)
    search = SavedSearch(
        id=new_id("search"),
        tenant_id=org.id,
        name=name,
        query=parse_saved_query(query),
        created_by=actor,
        created_at=work.now,
    )
    mine = select(func.count()).where(SavedSearch.tenant_id == org.id)
    if (await work.session.scalar(mine) or 0) >= SEARCHES_MAX:
        raise TooManySearches
    work.session.add(search)
    try:
        await work.session.flush()
    except IntegrityError as error:
        raise SearchExists from error
    return search


async def delete_search(work: UnitOfWork, org: Organisation, search_id: str) -> None:
    """Delete a saved search of the organisation. Raises SearchNotFound."""
    mine = delete(SavedSearch).where(SavedSearch.tenant_id == org.id, SavedSearch.id == search_id)
    if (await work.session.execute(mine.returning(SavedSearch.id))).scalar() is None:
        raise SearchNotFound
