"""An organisation's bindings in pages, for the dashboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import parse_since
from service.bindings.repository import BindingState, find_binding, in_state
from service.errors import BindingNotFound, Invalid
from service.store.tables import Binding

PAGE_ROWS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A binding filter; None matches all. `text`: part of a sub or repository id, in any case."""

    state: BindingState | None = None
    as_of: datetime | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of bindings, newest first. `total` counts all pages."""

    bindings: Sequence[Binding]
    total: int
    has_newer: bool
    has_older: bool


def parse_state(text: str | None) -> BindingState | None:
    """The state in a query parameter. Raises Invalid."""
    if text is not None and text not in set(BindingState):
        raise Invalid(f"state must be one of {', '.join(BindingState)}", field="state")
    return None if text is None else BindingState(text)


def parse_as_of(text: str | None) -> datetime | None:
    """The instant that `asOf` names; a date is its first instant, UTC. Raises Invalid."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise Invalid(
            "asOf must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)", field="asOf"
        ) from error


async def list_page(
    session: AsyncSession,
    tenant_id: str,
    wanted: Wanted,
    *,
    after: str | None = None,
    before: str | None = None,
) -> Listed:
    """The newest matching bindings, or those directly `after` or `before` the given binding.

    Pages start at a binding id rather than an offset, so that revoking bindings while paging skips
    none. Raises BindingNotFound if the given binding does not exist.
    """
    matching = _matching(tenant_id, wanted)
    total = await session.scalar(select(func.count()).where(*matching)) or 0
    if before is not None:
        above = [*matching, _is_newer(await _get(session, tenant_id, before))]
        oldest_first = select(Binding).where(*above).order_by(Binding.added_at, Binding.id.desc())
        rows = (await session.scalars(oldest_first.limit(PAGE_ROWS + 1))).all()
        if len(rows) > PAGE_ROWS:
            return Listed(rows[:PAGE_ROWS][::-1], total, has_newer=True, has_older=True)
    elif after is not None:
        matching.append(_is_older(await _get(session, tenant_id, after)))
    newest_first = select(Binding).where(*matching).order_by(Binding.added_at.desc(), Binding.id)
    rows = (await session.scalars(newest_first.limit(PAGE_ROWS + 1))).all()
    return Listed(
        rows[:PAGE_ROWS],
        total,
        has_newer=after is not None and before is None,
        has_older=len(rows) > PAGE_ROWS,
    )


def _matching(tenant_id: str, wanted: Wanted) -> list[ColumnElement[bool]]:
    matching = [Binding.tenant_id == tenant_id, in_state(wanted.state, wanted.as_of)]
    if wanted.text:
        columns = (Binding.sub_pattern, Binding.repository_id)
        matching.append(or_(*(name.icontains(wanted.text, autoescape=True) for name in columns)))
    return matching


async def _get(session: AsyncSession, tenant_id: str, binding_id: str) -> Binding:
    binding = await find_binding(session, tenant_id, binding_id)
    if binding is None:
        raise BindingNotFound
    return binding


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
