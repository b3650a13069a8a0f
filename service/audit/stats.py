"""Storage statistics of each organisation, and how far their verification is."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from analytics.model.errors import StoreFault
from analytics.model.instants import format_us, optional_us, utc_day
from analytics.storage.journal_batches import oldest_row
from service.audit.lake import Lake
from service.core.storage_stats import StorageStats, total_of
from service.store.journal import list_batches
from service.store.lost_segments import list_losses
from service.store.organisations import list_orgs
from service.store.tables import JournalEntry, Organisation, SegmentEntry
from service.store.verification import count_verified, list_damaged


async def list_stats(session: AsyncSession, lake: Lake) -> dict[str, Any]:
    """The stored amounts: `organisations`, one entry each by slug, and their `total`.

    `bytes` and `bytes_per_row` cover segments only; `oldest_at` is the time of the oldest row,
    sealed or not. The last two are None without rows. So is `oldest_at` where a damaged journal
    batch has to be read for it; `faults` names these.
    """
    orgs = await list_orgs(session)
    stored = await storage_stats_by_tenant(session)
    oldest, faults = await _oldest(session, lake, stored)
    total = total_of(stored.values())
    return {
        "organisations": [
            {"org": org.slug} | _line(stored[org.id], oldest.get(org.id)) for org in orgs
        ],
        # Of some organisations alone it would be no answer.
        "total": _line(total, None if faults else min(oldest.values(), default=None)),
        "faults": faults,
    }


async def verification_data(session: AsyncSession, since: datetime) -> dict[str, Any]:
    """How many segments were verified since `since`, of how many, what is damaged, what is lost."""
    slugs = {org.id: org.slug for org in await list_orgs(session)}
    counts = await count_verified(session, since)
    damaged = await list_damaged(session)
    losses = await list_losses(session)
    return {
        **counts,
        "oldest_at": optional_us(counts["oldest_at"]),
        "damaged": [
            {
                "org": slugs[each.tenant_id],
                "day": str(each.day),
                "segment": each.segment_id,
                "path": each.path,
                "rows": each.rows,
                "damage": each.damage,
            }
            for each in damaged
        ],
        "lost": [
            {
                "org": slugs[each.tenant_id],
                "day": str(each.day),
                "segment": each.id,
                "rows": each.rows,
                "first_seq": each.min_seq,
                "last_seq": each.max_seq,
                "damage": each.damage,
                "lost_at": format_us(each.lost_at),
            }
            for each in losses
        ],
    }


async def storage_stats_by_tenant(session: AsyncSession) -> dict[str, StorageStats]:
    """Storage of each organisation by tenant id; four statements, reads no file or batch."""
    stored = {
        tenant_id: StorageStats() for tenant_id in await session.scalars(select(Organisation.id))
    }
    is_live = SegmentEntry.retired_at.is_(None)
    is_retired = SegmentEntry.retired_at.is_not(None)
    is_lock_kept = or_(
        SegmentEntry.locked_until > SegmentEntry.retired_at,
        and_(is_retired, SegmentEntry.lock_held_at.is_not(None)),
    )
    segments = select(
        SegmentEntry.tenant_id,
        func.count().filter(is_live).label("segments"),
        _sum(SegmentEntry.rows, is_live).label("segment_rows"),
        _sum(SegmentEntry.size, is_live).label("segment_bytes"),
        func.min(SegmentEntry.min_created_at).filter(is_live).label("oldest_sealed_at"),
        func.count().filter(is_live, SegmentEntry.damage.is_not(None)).label("damaged_segments"),
        func.count().filter(is_retired).label("retired_segments"),
        _sum(SegmentEntry.size, is_retired).label("retired_bytes"),
        func.count()
        .filter(is_live, SegmentEntry.locked_until.is_not(None))
        .label("locked_segments"),
        func.count().filter(is_lock_kept).label("lock_kept_segments"),
        _sum(SegmentEntry.size, is_lock_kept).label("lock_kept_bytes"),
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


def _line(stored: StorageStats, oldest_at: datetime | None) -> dict[str, Any]:
    per_row = stored.bytes_per_row
    return {
        "rows": stored.rows,
        "days": stored.days,
        "segments": stored.segments,
        "bytes": stored.segment_bytes,
        "bytes_per_row": None if per_row is None else round(per_row, 1),
        "journal_rows": stored.journal_rows,
        "journal_batches": stored.journal_batches,
        "oldest_at": optional_us(oldest_at),
        "retired_segments": stored.retired_segments,
        "retired_bytes": stored.retired_bytes,
        "locked_segments": stored.locked_segments,
        "lock_kept_segments": stored.lock_kept_segments,
        "lock_kept_bytes": stored.lock_kept_bytes,
    }


async def _oldest(
    session: AsyncSession, lake: Lake, stored: dict[str, StorageStats]
) -> tuple[dict[str, datetime], list[str]]:
    """The time of each tenant's oldest row, and why it is missing for some.

    For sealed rows it is in the catalog. Journal batches have to be decoded, but only those of one
    day, and only if no sealed row is of an earlier day, which is rare for a tenant with history.
    """
    oldest = {
        tenant_id: part.oldest_sealed_at
        for tenant_id, part in stored.items()
        if part.oldest_sealed_at is not None
    }
    days = {
        (tenant_id, part.oldest_journal_day)
        for tenant_id, part in stored.items()
        if part.oldest_journal_day is not None
        and (tenant_id not in oldest or part.oldest_journal_day <= utc_day(oldest[tenant_id]))
    }
    faults = []
    for tenant_id, day in days:
        batches = await list_batches(session, tenant_id, day)
        try:
            at = await lake.run_in_thread(oldest_row, batches)
        except StoreFault as error:
            oldest.pop(tenant_id, None)
            faults.append(str(error))
        else:
            oldest[tenant_id] = min(at, oldest.get(tenant_id, at))
    return oldest, faults


def _sum(column: InstrumentedAttribute[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    """A sum as an integer on every database: PostgreSQL would return a decimal."""
    return cast(func.coalesce(func.sum(column).filter(where), 0), BigInteger)
