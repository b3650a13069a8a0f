"""The segment catalog: which Parquet files hold rows, and their metadata."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Select,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.storage.segment_index import INDEX_VERSION
from analytics.storage.segment_metadata import FIELD_IDS_SINCE, Segment
from service.store.batching import KEYS_MAX, scalars_of
from service.store.tables import SegmentEntry
from service.store.transaction import Transaction

_IS_LIVE: Final = SegmentEntry.retired_at.is_(None)
_IS_LIVE_OF_TENANT: Final = and_(SegmentEntry.tenant_id == bindparam("tenant_id"), _IS_LIVE)
_LIVE_IDS: Final = select(SegmentEntry.id).where(_IS_LIVE_OF_TENANT)
_SEGMENTS: Final = select(
    SegmentEntry.id,
    SegmentEntry.tenant_id,
    SegmentEntry.day,
    SegmentEntry.rows,
    SegmentEntry.size,
    SegmentEntry.min_created_at,
    SegmentEntry.max_created_at,
    SegmentEntry.min_seq,
    SegmentEntry.max_seq,
    SegmentEntry.event_counts,
    SegmentEntry.decision_counts,
    SegmentEntry.seq_base,
    SegmentEntry.schema_version,
    func.coalesce(SegmentEntry.sha256, ""),
    func.coalesce(SegmentEntry.index_size, 0),
    func.coalesce(SegmentEntry.index_sha256, ""),
    case((SegmentEntry.seq_base != 0, SegmentEntry.sealed_at)),
)
"""The fields of `Segment`, in order."""

_LIVE: Final = (
    select(SegmentEntry.tenant_id, SegmentEntry.id, SegmentEntry.rows)
    .where(_IS_LIVE)
    .order_by(SegmentEntry.tenant_id, SegmentEntry.day, SegmentEntry.id)
)
_LIVE_SEGMENTS: Final = _SEGMENTS.where(_IS_LIVE_OF_TENANT)
_LIVE_SEGMENT: Final = _LIVE_SEGMENTS.where(SegmentEntry.id == bindparam("id"))
_FEW: Final = 16
"""Up to this many segments are loaded one by one; beyond it, all segments of the tenant."""


async def list_live_segments(session: AsyncSession, tenant_id: str | None = None) -> list[Segment]:
    """All live segments, limited to one tenant if `tenant_id` is given."""
    query = _SEGMENTS.where(_IS_LIVE)
    if tenant_id is not None:
        query = query.where(SegmentEntry.tenant_id == tenant_id)
    query = query.order_by(SegmentEntry.tenant_id, SegmentEntry.day, SegmentEntry.id)
    return await _list(session, query)


class LiveSegment(NamedTuple):
    """A live segment's id and rows, for callers that compare many."""

    segment_id: str
    rows: int


async def list_live(session: AsyncSession) -> dict[str, list[LiveSegment]]:
    """The live segments of each tenant, by day, at a sixth of the cost of `list_live_segments`."""
    connection = await session.connection()
    by_tenant: defaultdict[str, list[LiveSegment]] = defaultdict(list)
    for tenant_id, segment_id, rows in await connection.execute(_LIVE):
        by_tenant[tenant_id].append(LiveSegment(segment_id, rows))
    return by_tenant


async def list_by_id(session: AsyncSession, ids: Sequence[str]) -> list[Segment]:
    """The segments `ids`, in their order; without those that are not in the catalog."""
    segments: dict[str, Segment] = {}
    for start in range(0, len(ids), KEYS_MAX):
        query = _SEGMENTS.where(SegmentEntry.id.in_(ids[start : start + KEYS_MAX]))
        segments |= {segment.segment_id: segment for segment in await _list(session, query)}
    return [segments[segment_id] for segment_id in ids if segment_id in segments]


async def list_unportable(session: AsyncSession) -> list[Segment]:
    """Live segments that only the catalog explains (see `Segment.is_portable`)."""
    is_unportable = or_(SegmentEntry.seq_base != 0, SegmentEntry.schema_version < FIELD_IDS_SINCE)
    return await _list(session, _SEGMENTS.where(_IS_LIVE, is_unportable))


async def list_places(session: AsyncSession) -> dict[str, tuple[str, date]]:
    """Tenant and day of every segment in the catalog, by id; retired ones included."""
    lines = await session.execute(select(SegmentEntry.id, SegmentEntry.tenant_id, SegmentEntry.day))
    return {segment_id: (tenant_id, day) for segment_id, tenant_id, day in lines}


async def is_live(session: AsyncSession, segment_id: str) -> bool:
    """True until the segment is retired."""
    query = select(SegmentEntry.id).where(SegmentEntry.id == segment_id, _IS_LIVE)
    return await session.scalar(query) is not None


def list_ids(transaction: Transaction, tenant_id: str) -> list[str]:
    """The ids of the tenant's live segments."""
    return [segment_id for (segment_id,) in transaction.rows(_LIVE_IDS, {"tenant_id": tenant_id})]


def load_segments(
    transaction: Transaction, tenant_id: str, ids: Collection[str]
) -> dict[str, Segment]:
    """The live segments of the tenant among `ids`, by id."""
    if len(ids) > _FEW:
        lines = transaction.rows(_LIVE_SEGMENTS, {"tenant_id": tenant_id})
    else:
        lines = [
            line
            for segment_id in ids
            for line in transaction.rows(_LIVE_SEGMENT, {"tenant_id": tenant_id, "id": segment_id})
        ]
    wanted = frozenset(ids)
    return {line[0]: Segment(*line) for line in lines if line[0] in wanted}


async def list_segments(session: AsyncSession, tenant_id: str, day: date) -> list[Segment]:
    """The tenant's live segments of one day."""
    of_day = SegmentEntry.tenant_id == tenant_id, SegmentEntry.day == day
    return await _list(session, _SEGMENTS.where(_IS_LIVE, *of_day))


async def add_segments(
    session: AsyncSession, segments: Sequence[Segment], sealed_at: datetime
) -> None:
    """Add `segments` to the catalog in one statement: other writers wait meanwhile.

    Readers see them from the commit on. Rows of a segment with a seq base were received at
    `sealed_at`.
    """
    await session.execute(insert(SegmentEntry), [_line(segment, sealed_at) for segment in segments])


def _line(segment: Segment, sealed_at: datetime) -> dict[str, Any]:
    """The columns of `segment`, which are named like its fields; what is not known is null."""
    line = {field.name: getattr(segment, field.name) for field in fields(Segment)}
    line["id"] = line.pop("segment_id")
    del line["received_at"]
    line |= {name: line[name] or None for name in ("sha256", "index_size", "index_sha256")}
    return line | {"sealed_at": sealed_at, "index_version": INDEX_VERSION}


@dataclass(frozen=True, slots=True)
class SegmentedDay:
    """A tenant-day whose segments can be merged.

    `last_sealed_at` is when the newest segment was sealed, `rows` the total over all segments, and
    `rows_max` the rows of the largest one.
    """

    tenant_id: str
    day: date
    segments: int
    last_sealed_at: datetime
    rows: int
    rows_max: int


async def list_segmented_days(session: AsyncSession, before: date) -> list[SegmentedDay]:
    """The tenant-days before the UTC day `before` with several segments, or one with a seq base.

    The file of a segment with a seq base numbers its rows from 0. Merging rewrites it with absolute
    seq numbers, so that it can be read without the catalog.
    """
    days = await session.execute(
        select(
            SegmentEntry.tenant_id,
            SegmentEntry.day,
            func.count(),
            func.max(SegmentEntry.sealed_at),
            cast(func.sum(SegmentEntry.rows), BigInteger),  # PostgreSQL's sum is a decimal
            func.max(SegmentEntry.rows),
        )
        .where(SegmentEntry.retired_at.is_(None), SegmentEntry.day < before)
        .group_by(SegmentEntry.tenant_id, SegmentEntry.day)
        .having(or_(func.count() > 1, func.max(SegmentEntry.seq_base) > 0))
        .order_by(SegmentEntry.day.desc(), SegmentEntry.tenant_id)
    )
    return [SegmentedDay(*line) for line in days]


async def retire_segments(
    session: AsyncSession, segments: Iterable[Segment], retired_at: datetime
) -> int:
    """Hide `segments` from new readers; returns how many were still live.

    The files stay for readers that hold a snapshot of them, see `list_retired`.
    """
    hide = (
        update(SegmentEntry)
        # Those already retired keep their time: the grace of their files runs from it.
        .where(SegmentEntry.retired_at.is_(None))
        .values(retired_at=retired_at)
        .returning(SegmentEntry.id)
    )
    ids = [segment.segment_id for segment in segments]
    return len([hidden async for hidden in scalars_of(session, hide, SegmentEntry.id, ids)])


async def list_unindexed(session: AsyncSession, limit: int) -> list[Segment]:
    """Live segments without an index of this version, newest days first."""
    is_missing = SegmentEntry.index_sha256.is_(None)
    is_old = func.coalesce(SegmentEntry.index_version, 0) < INDEX_VERSION
    query = (
        _SEGMENTS.where(_IS_LIVE, or_(is_missing, is_old))
        .order_by(SegmentEntry.day.desc(), SegmentEntry.id)
        .limit(limit)
    )
    return await _list(session, query)


async def clear_index(session: AsyncSession, segment: Segment) -> bool:
    """Have the index of `segment` built again; False if that has been done, or it is not live."""
    cleared = await session.scalar(
        update(SegmentEntry)
        .where(
            SegmentEntry.id == segment.segment_id,
            _IS_LIVE,
            SegmentEntry.index_sha256 == segment.index_sha256,
        )
        .values(index_size=None, index_sha256=None)
        .returning(SegmentEntry.id)
    )
    return cleared is not None


async def set_index(session: AsyncSession, segment: Segment) -> None:
    """Store the size and digest of the index file of `segment`, built by this version."""
    await session.execute(
        update(SegmentEntry)
        .where(SegmentEntry.id == segment.segment_id)
        .values(
            index_size=segment.index_size,
            index_sha256=segment.index_sha256,
            index_version=INDEX_VERSION,
        )
    )


async def list_retired(session: AsyncSession, before: datetime, now: datetime) -> list[Segment]:
    """Segments retired before `before` whose files no lock keeps any more."""
    is_unlocked = or_(SegmentEntry.locked_until.is_(None), SegmentEntry.locked_until <= now)
    return await _list(
        session,
        _SEGMENTS.where(
            # Not `<=`: a table that was published at that instant may name them, see
            # `LakeState.is_fenced`.
            SegmentEntry.retired_at < before,
            is_unlocked,
            SegmentEntry.lock_held_at.is_(None),
        ),
    )


async def delete_segments(session: AsyncSession, segments: Iterable[Segment]) -> int:
    """Delete `segments`, whose files are already unlinked, from the catalog; returns how many."""
    deletion = delete(SegmentEntry).returning(SegmentEntry.id)
    ids = [segment.segment_id for segment in segments]
    return len([gone async for gone in scalars_of(session, deletion, SegmentEntry.id, ids)])


async def list_segment_ids(session: AsyncSession) -> set[str]:
    """The ids of all segments in the catalog, retired ones included."""
    return set(await session.scalars(select(SegmentEntry.id)))


async def _list(session: AsyncSession, query: Select[*tuple[Any, ...]]) -> list[Segment]:
    return [Segment(*line) for line in await session.execute(query)]
