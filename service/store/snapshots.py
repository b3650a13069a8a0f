"""Snapshots: all audit rows of one tenant at one instant."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from analytics.cache.lru import ByteCache
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.store.catalog import list_ids, load_segments
from service.store.commit_cache import LINE_BYTES
from service.store.journal import last_seq, list_seqs, load_batches
from service.store.transaction import Transaction


def snapshot(transaction: Transaction, tenant_id: str, kept: ByteCache) -> Snapshot:
    """All audit rows of the tenant as of this read transaction.

    The only place that limits reads to a tenant: every query, summary and export starts here. All
    reads share one transaction; otherwise a seal committed between them would show its rows twice
    or not at all. Segments and batches are immutable, so their ids are read each time and their
    contents are cached in `kept`. While a tenant has the same ones they come as the same tuple:
    what was concluded from it still holds.
    """
    return Snapshot(
        tenant_id=tenant_id,
        watermark=last_seq(transaction),
        segments=_segments(transaction, tenant_id, kept),
        batches=_batches(transaction, tenant_id, kept),
    )


def _segments(transaction: Transaction, tenant_id: str, kept: ByteCache) -> tuple[Segment, ...]:
    """The tenant's segments, newest first; the same tuple until the set changes."""
    ids = list_ids(transaction, tenant_id)
    known: tuple[Segment, ...]
    known_ids, known = kept.find(("segments", tenant_id))[1] or ([], ())
    if known_ids == ids:
        return known
    by_id = {segment.segment_id: segment for segment in known}
    missing = [segment_id for segment_id in ids if segment_id not in by_id]
    if missing:
        by_id |= load_segments(transaction, tenant_id, missing)
    segments = [by_id[segment_id] for segment_id in ids]
    live = tuple(sorted(segments, key=attrgetter("max_created_at"), reverse=True))
    kept.keep(("segments", tenant_id), (ids, live), len(ids) * LINE_BYTES)
    return live


def _batches(transaction: Transaction, tenant_id: str, kept: ByteCache) -> tuple[JournalBatch, ...]:
    """The tenant's batches, in order of acceptance; the same tuple until the set changes."""
    seqs = list_seqs(transaction, tenant_id)
    known: tuple[JournalBatch, ...]
    known_seqs, known = kept.find(("batches", tenant_id))[1] or ([], ())
    if known_seqs == seqs:
        return known
    by_seq = dict(zip(known_seqs, known, strict=True))
    # By seq alone: `seqs` are the tenant's own, and a seq is given out once.
    by_seq |= {seq: kept.find(seq)[1] for seq in seqs if seq not in by_seq}
    missing = [seq for seq in seqs if by_seq[seq] is None]
    if missing:
        loaded = load_batches(transaction, tenant_id, missing)
        keep_batches(kept, loaded.values())
        by_seq |= loaded
    live = tuple(by_seq[seq] for seq in seqs)
    kept.keep(("batches", tenant_id), (seqs, live), _size_of(live))
    return live


def keep_batches(kept: ByteCache, batches: Iterable[JournalBatch]) -> None:
    """Cache `batches`, which are committed, for later snapshots."""
    for batch in batches:
        kept.keep(batch.first_seq, batch, _size_of([batch]))


def snapshot_size(held: Snapshot) -> int:
    """Upper bound of the memory of a cached snapshot, in bytes."""
    return len(held.segments) * LINE_BYTES + _size_of(held.batches)


def _size_of(batches: Sequence[JournalBatch]) -> int:
    return len(batches) * LINE_BYTES + sum(len(batch.data) for batch in batches)
