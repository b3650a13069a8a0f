"""Counting and deleting whole days of a tenant, in the journal and in segments."""

from collections import Counter
from datetime import date, datetime

from sqlalchemy import delete, func, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.store.tables import JournalEntry, SegmentEntry


async def count_days(session: AsyncSession, tenant_id: str, before: date) -> Counter[date]:
    """The number of rows on each of the tenant's days before `before`."""
    stored = union_all(
        select(JournalEntry.day, JournalEntry.rows).where(
            JournalEntry.tenant_id == tenant_id, JournalEntry.day < before
        ),
        select(SegmentEntry.day, SegmentEntry.rows).where(
            SegmentEntry.tenant_id == tenant_id,
            SegmentEntry.day < before,
            SegmentEntry.retired_at.is_(None),
        ),
    ).subquery()
    counted = await session.execute(
        select(stored.c.day, func.sum(stored.c.rows)).group_by(stored.c.day)
    )
    return Counter({day: int(rows) for day, rows in counted})


async def drop_days(
    session: AsyncSession, tenant_id: str, through: date, retired_at: datetime
) -> Counter[date]:
    """Hide the tenant's days up to `through` from new readers; returns the rows of each day.

    Segments are retired (see `service.store.catalog.retire_segments`). Journal batches are
    deleted, because readers hold copies of them.
    """
    retired = await session.execute(
        update(SegmentEntry)
        .where(
            SegmentEntry.tenant_id == tenant_id,
            SegmentEntry.day <= through,
            SegmentEntry.retired_at.is_(None),
        )
        .values(retired_at=retired_at)
        .returning(SegmentEntry.day, SegmentEntry.rows)
    )
    deleted = await session.execute(
        delete(JournalEntry)
        .where(JournalEntry.tenant_id == tenant_id, JournalEntry.day <= through)
        .returning(JournalEntry.day, JournalEntry.rows)
    )
    rows = Counter[date]()
    for day, count in [*retired, *deleted]:
        rows[day] += count
    return rows
