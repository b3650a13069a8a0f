"""What is published, and how far it is behind."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.audit.open_table.places import ALL_TENANTS, TableKey
from service.audit.open_table.registry import list_tables
from service.store.tables import JournalEntry, LakeTable, SegmentEntry


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as it was last published, and what it lacks.

    `lag_rows` counts rows after `complete_through_seq` that are not in the table; a merge since its
    publication can make it more than there are. `lag_s` is how long ago the oldest of them was
    accepted or sealed; 0 if there are none.
    """

    key: TableKey
    line: LakeTable
    lag_rows: int
    lag_s: float


async def table_statuses(session: AsyncSession, now: datetime) -> Sequence[TableStatus]:
    """The status of every published table."""
    tables = await list_tables(session)
    return [await _status(session, key, line, now) for key, line in tables.items()]


async def _status(
    session: AsyncSession, key: TableKey, line: LakeTable, now: datetime
) -> TableStatus:
    journal = select(
        func.coalesce(func.sum(JournalEntry.rows), 0), func.min(JournalEntry.received_at)
    )
    sealed = select(
        func.coalesce(func.sum(SegmentEntry.rows), 0), func.min(SegmentEntry.sealed_at)
    ).where(
        SegmentEntry.retired_at.is_(None),
        SegmentEntry.sealed_at > line.published_at,
        SegmentEntry.max_seq > line.complete_through_seq,
    )
    if key.tenant_id != ALL_TENANTS:
        journal = journal.where(JournalEntry.tenant_id == key.tenant_id)
        sealed = sealed.where(SegmentEntry.tenant_id == key.tenant_id)
    parts = [(await session.execute(query)).one() for query in (journal, sealed)]
    since = min((oldest for _, oldest in parts if oldest is not None), default=now)
    return TableStatus(
        key,
        line,
        lag_rows=sum(int(rows) for rows, _ in parts),
        lag_s=max(0.0, (now - since).total_seconds()),
    )
