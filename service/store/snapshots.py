"""Snapshots: all audit rows of one tenant at one instant."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from analytics.cache.lru import ByteCache
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.store.catalog import list_ids, load_segments
from service.store.journal import last_seq, list_seqs, load_batches
from service.store.transaction import Transaction

LINE_BYTES: Final = 2_048
"""What a line takes in memory besides a batch's bytes, roughly."""

_Key = TypeVar("_Key", str, int)
_Line = TypeVar("_Line", Segment, JournalBatch)


def snapshot(transaction: Transaction, tenant_id: str, kept: ByteCache) -> Snapshot:
    """All audit rows of the tenant as of this read transaction.

    The one place where reading is limited to a tenant: whatever is queried, summed or exported
    starts from here. All reads must share one transaction, or a seal that commits between them
    would show its rows twice or not at all. Lines and batches never change, so which of them
    there are is read each time, and what they are only once, as far as `kept` has room.
    """
    ids = list_ids(transaction, tenant_id)
    seqs = list_seqs(transaction, tenant_id)
    segments = _known(kept, ids, partial(load_segments, transaction, tenant_id))
    batches = _known(kept, seqs, partial(load_batches, transaction, tenant_id))
    keep_batches(kept, batches.values())
    for segment_id, segment in segments.items():
        kept.keep(segment_id, segment, LINE_BYTES)
    return Snapshot(
        tenant_id=tenant_id,
        watermark=last_seq(transaction),
        segments=tuple(segments.values()),
        batches=tuple(batches.values()),
    )


def keep_batches(kept: ByteCache, batches: Iterable[JournalBatch]) -> None:
    """Spare the snapshots to come the reading of `batches`, which are committed."""
    for batch in batches:
        kept.keep(batch.first_seq, batch, _batch_size(batch))


def _known(
    kept: ByteCache,
    keys: Sequence[_Key],
    load: Callable[[Sequence[_Key]], dict[_Key, _Line]],
) -> dict[_Key, _Line]:
    """What `keys` name, in their order. Ids are text and seqs are numbers, so none is mistaken."""
    known = {key: kept.find(key)[1] for key in keys}
    missing = [key for key, line in known.items() if line is None]
    if missing:
        known.update(load(missing))
    return known


def snapshot_size(held: Snapshot) -> int:
    """What keeping the snapshot may cost, if nothing else keeps its lines and batches."""
    return len(held.segments) * LINE_BYTES + sum(map(_batch_size, held.batches))


def _batch_size(batch: JournalBatch) -> int:
    return LINE_BYTES + len(batch.data)
