"""When stored files were last verified, and those that were damaged then."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.storage.integrity import Finding
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.layout import segment_path
from analytics.storage.segment_metadata import Segment
from service.store.batching import KEYS_MAX
from service.store.catalog import list_by_id
from service.store.journal import load_batches
from service.store.tables import JournalEntry, SegmentEntry
from service.store.transaction import within

_IS_LIVE: Final = SegmentEntry.retired_at.is_(None)
_WAITS_SINCE: Final[ColumnElement[datetime]] = func.coalesce(
    SegmentEntry.verified_at, SegmentEntry.sealed_at, type_=SegmentEntry.sealed_at.type
)
"""From when on the file waits to be verified: first since it was written."""


@dataclass(frozen=True, slots=True)
class StoredDamage:
    """A segment, or journal batch (`segment_id` is None), that was damaged when last verified.

    `path` is the file's below the audit folder or the bucket's prefix, or names the batch.
    """

    tenant_id: str
    day: date
    segment_id: str | None
    path: str
    rows: int
    damage: str


async def list_unverified(session: AsyncSession, before: datetime, limit: int) -> list[Segment]:
    """Live segments last verified before `before`, those that waited longest first."""
    due = (
        select(SegmentEntry.id)
        .where(_IS_LIVE, before > _WAITS_SINCE)
        .order_by(_WAITS_SINCE, SegmentEntry.id)
        .limit(limit)
    )
    return await list_by_id(session, list(await session.scalars(due)))


async def set_verified(
    session: AsyncSession, found: Mapping[str, Finding | None], at: datetime
) -> set[str]:
    """Note what was wrong at `at` with the segments `found` (by id; None: nothing).

    Returns the ids of those that are live: others may have been removed meanwhile.
    """
    live: set[str] = set()
    by_damage: dict[str | None, list[str]] = {}
    for segment_id, fault in found.items():
        by_damage.setdefault(None if fault is None else fault.text, []).append(segment_id)
    for damage, ids in by_damage.items():
        for start in range(0, len(ids), KEYS_MAX):
            noted = (
                update(SegmentEntry)
                .where(SegmentEntry.id.in_(ids[start : start + KEYS_MAX]), _IS_LIVE)
                .values(verified_at=at, damage=damage)
                .returning(SegmentEntry.id)
            )
            live.update(await session.scalars(noted))
    return live


async def list_old_batches(
    session: AsyncSession, after_seq: int, before: datetime, limit: int
) -> list[JournalBatch]:
    """Journal batches behind `after_seq` received before `before`."""
    old = (
        select(JournalEntry.first_seq, JournalEntry.tenant_id)
        .where(JournalEntry.first_seq > after_seq, JournalEntry.received_at < before)
        .order_by(JournalEntry.first_seq)
        .limit(limit)
    )
    return await _load_batches(session, old)


async def list_batches_at(session: AsyncSession, first_seqs: Sequence[int]) -> list[JournalBatch]:
    """The journal batches with these first seq, KEYS_MAX at most.

    Without those that are known to be damaged.
    """
    found = select(JournalEntry.first_seq, JournalEntry.tenant_id).where(
        JournalEntry.first_seq.in_(first_seqs[:KEYS_MAX]), JournalEntry.damage.is_(None)
    )
    return await _load_batches(session, found)


async def _load_batches(session: AsyncSession, found: Select[int, str]) -> list[JournalBatch]:
    seqs: dict[str, list[int]] = {}
    for first_seq, tenant_id in await session.execute(found):
        seqs.setdefault(tenant_id, []).append(first_seq)
    batches: dict[int, JournalBatch] = {}
    for tenant_id, first_seqs in seqs.items():
        batches |= await within(session, load_batches, tenant_id, first_seqs)
    return [batches[first_seq] for first_seq in sorted(batches)]


async def set_batch_damage(
    session: AsyncSession, verified: Collection[int], damage: Mapping[int, Finding]
) -> None:
    """Note what is wrong with those of the `verified` journal batches that are damaged."""
    whole = update(JournalEntry).where(
        JournalEntry.first_seq.in_(verified), JournalEntry.damage.is_not(None)
    )
    await session.execute(whole.values(damage=None))
    for first_seq, fault in damage.items():
        entry = update(JournalEntry).where(JournalEntry.first_seq == first_seq)
        await session.execute(entry.values(damage=fault.text))


async def count_verified(session: AsyncSession, since: datetime) -> dict[str, Any]:
    """How many live `segments` there are, and how many of them were `verified` since `since`.

    `unread` were written since then and not verified yet. `oldest_at` is the oldest verification.
    """
    verified_at = SegmentEntry.verified_at
    is_unread = (verified_at.is_(None), SegmentEntry.sealed_at >= since)
    counts = select(
        func.count().label("segments"),
        func.count().filter(verified_at >= since).label("verified"),
        func.count().filter(*is_unread).label("unread"),
        func.min(verified_at).label("oldest_at"),
    ).where(_IS_LIVE)
    return {**(await session.execute(counts)).mappings().one()}


async def count_damaged(session: AsyncSession) -> int:
    """How many segments and journal batches were damaged when last verified."""
    segments = select(func.count()).where(_IS_LIVE, SegmentEntry.damage.is_not(None))
    batches = select(func.count()).where(JournalEntry.damage.is_not(None))
    return int(
        await session.scalar(select(segments.scalar_subquery() + batches.scalar_subquery())) or 0
    )


async def list_damaged_ids(session: AsyncSession) -> set[str]:
    """The ids of segments that were damaged when last verified."""
    query = select(SegmentEntry.id).where(_IS_LIVE, SegmentEntry.damage.is_not(None))
    return set(await session.scalars(query))


async def list_damaged(session: AsyncSession) -> list[StoredDamage]:
    """What was damaged when it was last verified, by organisation and day."""
    segments = select(
        SegmentEntry.tenant_id,
        SegmentEntry.day,
        SegmentEntry.id,
        SegmentEntry.rows,
        SegmentEntry.damage,
    ).where(_IS_LIVE, SegmentEntry.damage.is_not(None))
    batches = select(
        JournalEntry.tenant_id,
        JournalEntry.day,
        JournalEntry.first_seq,
        JournalEntry.rows,
        JournalEntry.damage,
    ).where(JournalEntry.damage.is_not(None))
    damaged: list[StoredDamage] = []
    for tenant_id, day, segment_id, rows, damage in await session.execute(segments):
        path = segment_path(Path(), tenant_id, day, segment_id).as_posix()
        damaged.append(StoredDamage(tenant_id, day, segment_id, path, rows, str(damage)))
    for tenant_id, day, first_seq, rows, damage in await session.execute(batches):
        name = f"journal batch from seq {first_seq}"
        damaged.append(StoredDamage(tenant_id, day, None, name, rows, str(damage)))
    return sorted(damaged, key=lambda each: (each.tenant_id, each.day, each.path))
