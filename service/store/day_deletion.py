"""Counting and deleting whole days of a tenant, in the journal and in segments."""

from collections import Counter
from datetime import date, datetime

from sqlalchemy import ColumnElement, and_, delete, func, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import midnight
from service.store.tables import JournalEntry, LostSegment, MisdatedDay, SegmentEntry


async def count_days(session: AsyncSession, tenant_id: str, before: date) -> Counter[date]:
    """The number of rows on each of the tenant's days before `before`, see `_is_past`."""
    stored = union_all(
        select(JournalEntry.day, JournalEntry.rows).where(
            _is_past(JournalEntry, tenant_id, before)
        ),
        select(SegmentEntry.day, SegmentEntry.rows).where(
            _is_past(SegmentEntry, tenant_id, before), SegmentEntry.retired_at.is_(None)
        ),
    ).subquery()
    counted = await session.execute(
        select(stored.c.day, func.sum(stored.c.rows)).group_by(stored.c.day)
    )
    return Counter({day: int(rows) for day, rows in counted})


async def drop_days(
    session: AsyncSession, tenant_id: str, before: date, retired_at: datetime
) -> Counter[date]:
    """Hide the days that `count_days` counts from new readers; returns the rows of each day.

    Segments are retired (see `service.store.catalog.retire_segments`). Journal batches are
    deleted, because readers hold copies of them.
    """
    retired = await session.execute(
        update(SegmentEntry)
        .where(_is_past(SegmentEntry, tenant_id, before), SegmentEntry.retired_at.is_(None))
        .values(retired_at=retired_at)
        .returning(SegmentEntry.day, SegmentEntry.rows)
    )
    deleted = await session.execute(
        delete(JournalEntry)
        .where(_is_past(JournalEntry, tenant_id, before))
        .returning(JournalEntry.day, JournalEntry.rows)
    )
    await session.execute(delete(LostSegment).where(_is_past(LostSegment, tenant_id, before)))
    rows = Counter[date]()
    for day, count in [*retired, *deleted]:
        rows[day] += count
    return rows


def _is_past(
    table: type[JournalEntry | LostSegment | SegmentEntry], tenant_id: str, before: date
) -> ColumnElement[bool]:
    """Whether a line is of the tenant and a day before `before`, and was not received after it.

    A clock that was far behind dated rows long before they were received, see MisdatedDay.
    """
    received_since = select(MisdatedDay.day).where(
        MisdatedDay.tenant_id == tenant_id, MisdatedDay.received_at >= midnight(before)
    )
    return and_(table.tenant_id == tenant_id, table.day < before, table.day.not_in(received_since))
