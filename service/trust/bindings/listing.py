"""An organisation's bindings, filtered, whole or in pages."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from analytics.model.filters import only
from analytics.model.instants import parse_since
from service.core.errors import Invalid
from service.store.tables import Binding
from service.trust.bindings.repository import (
    NEWEST_FIRST,
    BindingState,
    find_binding,
    get_binding,
    in_state,
)
from service.trust.bindings.rules import SUB_PATTERN_MAX, parse_repository_id
from service.web.refusals import INVALID_CURSOR
from service.web.request_parsing import parse_flag, parse_limit

PAGE_ROWS: Final = 100
LIMIT_MAX: Final = 1_000
PART_ROWS: Final = 250
"""Rows that are read and encoded at once: other requests have their turn in between."""
_TO_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
"""Like the database's `lower` on our columns, which only changes ASCII letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFilter:
    """A binding filter; None matches all.

    `text` is part of a sub or repository id, in any case; the fields below it match exactly. Those
    that are unused have admitted no token yet.
    """

    state: BindingState | None = None
    as_of: datetime | None = None
    text: str | None = None
    issuer: str | None = None
    sub: str | None = None
    repository_id: str | None = None
    is_unused: bool = False


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A filter and a page. Without a limit, everything that matches is one page.

    `cursor` is the id of the last binding on the previous page. It stays valid, because rows are
    never removed.
    """

    matching: BindingFilter
    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ListedBindings:
    """A page of bindings, newest first. `total` counts all pages."""

    bindings: Sequence[Binding]
    total: int
    has_newer: bool
    has_older: bool


def parse_list(parameters: Mapping[str, list[str]]) -> ListRequest:
    """The list that the query parameters ask for. Raises Invalid, InvalidQuery."""
    limit, cursor = only(parameters, "limit"), only(parameters, "cursor")
    repository_id = only(parameters, "repository_id")
    is_paged = limit is not None or cursor is not None
    matching = BindingFilter(
        state=_state(only(parameters, "state"), only(parameters, "active")),
        as_of=parse_as_of(only(parameters, "asOf")),
        issuer=only(parameters, "issuer"),
        sub=_sub(only(parameters, "sub")),
        repository_id=None if repository_id is None else parse_repository_id(repository_id),
    )
    return ListRequest(
        matching, parse_limit(limit, PAGE_ROWS, LIMIT_MAX) if is_paged else None, cursor
    )


def parse_state(text: str | None) -> BindingState | None:
    """The state in a query parameter. Raises Invalid."""
    if text is not None and text not in set(BindingState):
        raise Invalid(f"state must be one of {', '.join(BindingState)}", field="state")
    return None if text is None else BindingState(text)


def parse_as_of(text: str | None, field: str = "asOf") -> datetime | None:
    """The instant that `text` names; a date is its first instant, UTC. Raises Invalid."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise Invalid(
            f"{field} must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)", field=field
        ) from error


async def list_matching(
    session: AsyncSession, tenant_id: str, request: ListRequest
) -> AsyncIterator[Sequence[Binding]]:
    """The matching bindings after the cursor, newest first, in parts of at most PART_ROWS.

    With a limit one row more, which tells whether there is a next page. Raises INVALID_CURSOR.
    """
    conditions = _matching(tenant_id, request.matching)
    last = None
    if request.cursor is not None:
        last = await find_binding(session, tenant_id, request.cursor)
        if last is None:
            raise INVALID_CURSOR
    missing = None if request.limit is None else request.limit + 1
    while missing is None or missing > 0:
        after = [] if last is None else [_is_older(last)]
        rows_max = PART_ROWS if missing is None else min(missing, PART_ROWS)
        newest_first = select(Binding).where(*conditions, *after)
        newest_first = newest_first.order_by(*NEWEST_FIRST)
        rows = (await session.scalars(newest_first.limit(rows_max))).all()
        if rows:
            yield rows
        if len(rows) < rows_max:
            break
        last = rows[-1]
        missing = None if missing is None else missing - len(rows)


async def list_page(
    session: AsyncSession,
    tenant_id: str,
    matching: BindingFilter,
    *,
    after: str | None = None,
    before: str | None = None,
) -> ListedBindings:
    """The newest matching bindings, or those directly `after` or `before` the given binding.

    Pages start at a binding id rather than an offset, so that revoking bindings while paging skips
    none. Raises NO_SUCH_BINDING if the given binding does not exist.
    """
    conditions = _matching(tenant_id, matching)
    total = await session.scalar(select(func.count()).where(*conditions)) or 0
    if before is not None:
        above = [*conditions, _is_newer(await get_binding(session, tenant_id, before))]
        oldest_first = select(Binding).where(*above).order_by(Binding.added_at, Binding.id.desc())
        rows = (await session.scalars(oldest_first.limit(PAGE_ROWS + 1))).all()
        if len(rows) > PAGE_ROWS:
            return ListedBindings(rows[:PAGE_ROWS][::-1], total, has_newer=True, has_older=True)
    elif after is not None:
        conditions.append(_is_older(await get_binding(session, tenant_id, after)))
    newest_first = select(Binding).where(*conditions).order_by(*NEWEST_FIRST)
    rows = (await session.scalars(newest_first.limit(PAGE_ROWS + 1))).all()
    return ListedBindings(
        rows[:PAGE_ROWS],
        total,
        has_newer=after is not None and before is None,
        has_older=len(rows) > PAGE_ROWS,
    )


def _matching(tenant_id: str, matching: BindingFilter) -> list[ColumnElement[bool]]:
    conditions = [Binding.tenant_id == tenant_id, in_state(matching.state, matching.as_of)]
    if matching.is_unused:
        conditions.append(Binding.last_used_at.is_(None))
    if matching.text:
        columns = (Binding.sub_pattern, Binding.repository_id)
        conditions.append(or_(*(_contains(column, matching.text) for column in columns)))
    exact = {
        Binding.issuer: matching.issuer,
        Binding.sub_pattern: matching.sub,
        Binding.repository_id: matching.repository_id,
    }
    conditions.extend(column == value for column, value in exact.items() if value is not None)
    return conditions


def _contains(column: InstrumentedAttribute[Any], text: str) -> ColumnElement[bool]:
    """Condition: `column` contains `text`, ignoring the case of ASCII letters.

    Not by LIKE, which takes time proportional to the product of both lengths: seconds for a few
    thousand bindings.
    """
    lowered = func.lower(column)
    return func.replace(lowered, text.translate(_TO_LOWER), "") != lowered


def _state(state: str | None, active: str | None) -> BindingState | None:
    if active is None:
        return parse_state(state)
    if state is not None:
        raise Invalid("give either state or active", field="active")
    return BindingState.ACTIVE if parse_flag("active", active) else BindingState.REVOKED


def _sub(text: str | None) -> str | None:
    if text is not None and not 1 <= len(text) <= SUB_PATTERN_MAX:
        raise Invalid(f"sub must be 1..{SUB_PATTERN_MAX} chars", field="sub")
    return text


def _is_older(than: Binding) -> ColumnElement[bool]:
    return or_(
        Binding.added_at < than.added_at,
        and_(Binding.added_at == than.added_at, Binding.id > than.id),
    )


def _is_newer(than: Binding) -> ColumnElement[bool]:
    return or_(
        Binding.added_at > than.added_at,
        and_(Binding.added_at == than.added_at, Binding.id < than.id),
    )
