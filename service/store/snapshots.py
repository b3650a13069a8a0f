"""Snapshots: all audit rows of one tenant at one instant."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import CompoundSelect, null, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.cache.lru import ByteCache
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.store.catalog import LIVE_IDS, load_segments
from service.store.journal import FIRST_SEQS, LAST_SEQ, load_batches
from service.store.tables import Counter, JournalEntry, SegmentEntry

LINE_BYTES: Final = 2_048
"""What a line takes in memory besides a batch's bytes, roughly."""

# One statement: to go to the database and back takes longer than any of the three takes there.
_NAMES: Final[CompoundSelect[Any]] = union_all(
    LIVE_IDS.with_only_columns(SegmentEntry.id, null(), null()),
    FIRST_SEQS.with_only_columns(null(), JournalEntry.first_seq, null()),
    LAST_SEQ.with_only_columns(null(), null(), Counter.value),
)

_Key = TypeVar("_Key", str, int)
_Line = TypeVar("_Line", Segment, JournalBatch)


async def snapshot(session: AsyncSession, tenant_id: str, kept: ByteCache) -> Snapshot:
    """All audit rows of the tenant as of this read transaction.

    The one place where reading is limited to a tenant: whatever is queried, summed or exported
    starts from here. All reads must share one transaction, or a seal that commits between them
    would show its rows twice or not at all. Lines and batches never change, so which of them
    there are is read each time, and what they are only once, as far as `kept` has room.
    """
    ids, seqs, watermark = await _names(session, tenant_id)
    segments = await _known(kept, ids, partial(load_segments, session, tenant_id), _segment_size)
    batches = await _known(kept, seqs, partial(load_batches, session, tenant_id), _batch_size)
    return Snapshot(tenant_id=tenant_id, watermark=watermark, segments=segments, batches=batches)


async def _names(session: AsyncSession, tenant_id: str) -> tuple[list[str], list[int], int]:
    """What names the tenant's segments, and its batches in order; and the last seq of anybody."""
    ids, seqs, watermark = [], [], 0
    for segment_id, first_seq, last in await session.execute(_NAMES, {"tenant_id": tenant_id}):
        if segment_id is not None:
            ids.append(segment_id)
        elif first_seq is not None:
            seqs.append(first_seq)
        else:
            watermark = last
    return ids, sorted(seqs), watermark


async def _known(
    kept: ByteCache,
    keys: Sequence[_Key],
    load: Callable[[Sequence[_Key]], AsyncIterator[tuple[_Key, _Line]]],
    size_of: Callable[[_Line], int],
) -> tuple[_Line, ...]:
    """What `keys` name, in their order. Ids are text and seqs are numbers, so none is mistaken."""
    found: dict[_Key, Any] = {key: kept.find(key)[1] for key in keys}
    async for key, line in load([key for key, line in found.items() if line is None]):
        found[key] = line
        kept.keep(key, line, size_of(line))
    return tuple(found.values())


def snapshot_size(found: Snapshot) -> int:
    """What keeping the snapshot may cost, if nothing else keeps its lines and batches."""
    return sum(map(_segment_size, found.segments)) + sum(map(_batch_size, found.batches))


def _segment_size(segment: Segment) -> int:
    return LINE_BYTES


def _batch_size(batch: JournalBatch) -> int:
    return LINE_BYTES + len(batch.data)
