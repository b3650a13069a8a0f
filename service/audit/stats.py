"""What is stored for each organisation."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.instants import format_us
from service.orgs.repository import list_orgs
from service.store.tables import JournalEntry, SegmentEntry


async def list_stats(session: AsyncSession) -> list[dict[str, Any]]:
    """For each organisation: rows, days and segments; `bytes` of segments; rows in the journal.

    `oldest` is the oldest sealed row's instant, None when nothing is sealed.
    """
    return [{"org": org.slug, **await _stats(session, org.id)} for org in await list_orgs(session)]


async def _stats(session: AsyncSession, tenant_id: str) -> dict[str, Any]:
    sealed = (
        await session.execute(
            select(
                func.coalesce(func.sum(SegmentEntry.rows), 0),
                func.count(),
                func.coalesce(func.sum(SegmentEntry.size), 0),
                func.min(SegmentEntry.min_created_at),
            ).where(SegmentEntry.tenant_id == tenant_id, SegmentEntry.retired_at.is_(None))
        )
    ).one()
    journal_rows = await session.scalar(
        select(func.coalesce(func.sum(JournalEntry.rows), 0)).where(
            JournalEntry.tenant_id == tenant_id
        )
    )
    sealed_days = select(SegmentEntry.day).where(
        SegmentEntry.tenant_id == tenant_id, SegmentEntry.retired_at.is_(None)
    )
    journal_days = select(JournalEntry.day).where(JournalEntry.tenant_id == tenant_id)
    days = await session.scalars(sealed_days.union(journal_days))
    rows, segments, size, oldest = sealed
    return {
        "rows": int(rows) + int(journal_rows or 0),
        "days": len(days.all()),
        "segments": segments,
        "bytes": int(size),
        "journal_rows": int(journal_rows or 0),
        "oldest": None if oldest is None else format_us(oldest),
    }
