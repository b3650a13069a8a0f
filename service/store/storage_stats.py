"""Storage statistics per organisation, in a fixed number of statements."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import date, datetime

from sqlalchemy import BigInteger, ColumnElement, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from service.store.tables import JournalEntry, Organisation, SegmentEntry


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Storage of one organisation, or the total of several.

    `days` counts days with rows, sealed or not; a total adds up each organisation's days. Retired
    segments were merged or pruned; their files are kept until no reader can use them. Damaged
    segments and batches were so when last verified.
    """

    days: int = 0
    segments: int = 0
    segment_rows: int = 0
    segment_bytes: int = 0
    oldest_sealed_at: datetime | None = None
    retired_segments: int = 0
    retired_bytes: int = 0
    journal_rows: int = 0
    journal_batches: int = 0
    damaged_segments: int = 0
    damaged_batches: int = 0
    oldest_journal_day: date | None = None

    @property
    def rows(self) -> int:
        """All rows, sealed or not."""
        return self.segment_rows + self.journal_rows

    @property
    def bytes_per_row(self) -> float | None:
        """Average bytes of a sealed row on disk; None if nothing is sealed."""
        return self.segment_bytes / self.segment_rows if self.segment_rows else None


def total_of(parts: Iterable[StorageStats]) -> StorageStats:
    """The sum of `parts`."""
    added = list(parts)
    counts = [field.name for field in fields(StorageStats) if field.type is int]
    oldest = [part.oldest_sealed_at for part in added if part.oldest_sealed_at is not None]
    return StorageStats(
        **{name: sum(getattr(part, name) for part in added) for name in counts},
        oldest_sealed_at=min(oldest, default=None),
    )


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
