"""Snapshots: all audit rows of one tenant at one instant."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

from analytics.cache.lru import ByteCache
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.store.catalog import list_ids, load_segments
from service.store.journal import last_seq, list_seqs, load_batches
from service.store.transaction import Transaction

LINE_BYTES: Final = 2_048
"""What a line takes in memory besides a batch's bytes, roughly."""


def snapshot(transaction: Transaction, tenant_id: str, kept: ByteCache) -> Snapshot:
    """All audit rows of the tenant as of this read transaction.

    The one place where reading is limited to a tenant: whatever is queried, summed or exported
    starts from here. All reads must share one transaction, or a seal that commits between them
    would show its rows twice or not at all. Segments and batches never change, so which of them
    there are is read each time, and what they are only once, as far as `kept` has room.
    """
    seqs = list_seqs(transaction, tenant_id)
    batches = _known(kept, seqs, partial(load_batches, transaction, tenant_id))
    keep_batches(kept, batches.values())
    return Snapshot(
        tenant_id=tenant_id,
        watermark=last_seq(transaction),
        segments=_segments(transaction, tenant_id, kept),
        batches=tuple(batches.values()),
    )


@dataclass(frozen=True, slots=True)
class _LiveSegments:
    """The tenant's segments, newest first, and their ids in the order of the database."""

    ids: list[str]
    segments: tuple[Segment, ...]


def _segments(transaction: Transaction, tenant_id: str, kept: ByteCache) -> tuple[Segment, ...]:
    """The tenant's segments, newest first; as long as none comes or goes, the same tuple."""
    ids = list_ids(transaction, tenant_id)
    known: _LiveSegments | None = kept.find(("segments", tenant_id))[1]
    if known is not None and known.ids == ids:
        return known.segments
    by_id = {segment.segment_id: segment for segment in known.segments} if known else {}
    missing = [segment_id for segment_id in ids if segment_id not in by_id]
    if missing:
        by_id |= load_segments(transaction, tenant_id, missing)
    segments = [by_id[segment_id] for segment_id in ids]
    segments.sort(key=attrgetter("max_created_at"), reverse=True)
    live = _LiveSegments(ids, tuple(segments))
    kept.keep(("segments", tenant_id), live, len(ids) * LINE_BYTES)
    return live.segments


def keep_batches(kept: ByteCache, batches: Iterable[JournalBatch]) -> None:
    """Spare the snapshots to come the reading of `batches`, which are committed."""
    for batch in batches:
        kept.keep(batch.first_seq, batch, _batch_size(batch))


def _known(
    kept: ByteCache, seqs: Sequence[int], load: Callable[[Sequence[int]], dict[int, JournalBatch]]
) -> dict[int, JournalBatch]:
    """The batches that `seqs` name, in their order."""
    known = {seq: kept.find(seq)[1] for seq in seqs}
    missing = [seq for seq, batch in known.items() if batch is None]
    if missing:
        known.update(load(missing))
    return known


def snapshot_size(held: Snapshot) -> int:
    """What keeping the snapshot may cost, if nothing else keeps its lines and batches."""
    return len(held.segments) * LINE_BYTES + sum(map(_batch_size, held.batches))


def _batch_size(batch: JournalBatch) -> int:
    return LINE_BYTES + len(batch.data)
