"""Storage statistics per organisation, in a fixed number of statements."""

from dataclasses import replace

from sqlalchemy import BigInteger, ColumnElement, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from service.core.storage_stats import StorageStats
from service.store.tables import JournalEntry, Organisation, SegmentEntry


async def storage_stats_by_tenant(session: AsyncSession) -> dict[str, StorageStats]:
    """Storage of each organisation by tenant id; four statements, reads no file or batch."""
    stored = {
        tenant_id: StorageStats() for tenant_id in await session.scalars(select(Organisation.id))
    }
    is_live = SegmentEntry.retired_at.is_(None)
    is_retired = SegmentEntry.retired_at.is_not(None)
    segments = select(
        SegmentEntry.tenant_id,
        func.count().filter(is_live).label("segments"),
        _sum(SegmentEntry.rows, is_live).label("segment_rows"),
        _sum(SegmentEntry.size, is_live).label("segment_bytes"),
        func.min(SegmentEntry.min_created_at).filter(is_live).label("oldest_sealed_at"),
        func.count().filter(is_live, SegmentEntry.damage.is_not(None)).label("damaged_segments"),
        func.count().filter(is_retired).label("retired_segments"),
        _sum(SegmentEntry.size, is_retired).label("retired_bytes"),
    ).group_by(SegmentEntry.tenant_id)
    journal = select(
        JournalEntry.tenant_id,
        _sum(JournalEntry.rows, true()).label("journal_rows"),
        func.count().label("journal_batches"),
        func.count(JournalEntry.damage).label("damaged_batches"),
        func.min(JournalEntry.day).label("oldest_journal_day"),
    ).group_by(JournalEntry.tenant_id)
    each_day = (
        select(SegmentEntry.tenant_id, SegmentEntry.day)
        .where(is_live)
        .union(select(JournalEntry.tenant_id, JournalEntry.day))
        .subquery()
    )
    days = select(each_day.c.tenant_id, func.count().label("days")).group_by(each_day.c.tenant_id)
    for query in (segments, journal, days):
        for line in (await session.execute(query)).mappings():
            values = {name: value for name, value in line.items() if name != "tenant_id"}
            stats = stored.get(line["tenant_id"], StorageStats())
            stored[line["tenant_id"]] = replace(stats, **values)
    return stored


def _sum(column: InstrumentedAttribute[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    """A sum as an integer on every database: PostgreSQL would return a decimal."""
    return cast(func.coalesce(func.sum(column).filter(where), 0), BigInteger)
