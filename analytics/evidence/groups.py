"""Leaves by the seq of their rows, and the groups of 256 that a tree knows of them.

A row's leaf is its place among all rows of its organisation, in the order of seq. Only the first
seq of each group is stored: the rows from it to the next group's are its leaves in their order, but
for those that are pruned, whose places and hashes are kept while rows of the group are left.
"""

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from itertools import accumulate, chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.evidence.canonical import entries
from analytics.evidence.merkle import GROUP, HASH_BYTES, leaf_hashes
from analytics.model.errors import StoreFault
from analytics.model.schema import NO_ROWS, audit_id
from analytics.storage.journal_batches import decode_batch
from analytics.storage.segment_reader import open_segment
from analytics.storage.segment_store import SegmentStore
from analytics.storage.segment_writer import ROW_GROUP_BYTES, TEXT_DICTIONARIES
from analytics.storage.snapshot import Snapshot

_LEAF: Final = struct.Struct(f"<Bq{HASH_BYTES}s")
_CHECKSUM: Final = struct.Struct("<I")
_SEQ: Final = struct.Struct("<q")
_SEQS_DAMAGED: Final = "the stored seqs of groups are damaged"
_JOINED_ROWS: Final = 32_768
_JOINED_BYTES: Final = ROW_GROUP_BYTES // 2


Leaf = tuple[int, bytes]
"""The seq and the hash of a row."""


class LeavesDiffer(StoreFault):
    """The rows that are stored are not those that the tree was made of."""


def _parts(snapshot: Snapshot) -> Iterator[tuple[int, int, date]]:
    """The first and last seq of each batch and segment, and its day."""
    yield from ((batch.min_seq, batch.max_seq, batch.day) for batch in snapshot.batches)
    yield from ((each.min_seq, each.max_seq, each.day) for each in snapshot.segments)


def next_seq(snapshot: Snapshot, seq: int) -> int | None:
    """A seq after `seq` before which the snapshot has no further row; None if it has none after."""
    parts = _parts(snapshot)
    return min((max(least, seq + 1) for least, most, _ in parts if most > seq), default=None)


def days_between(snapshot: Snapshot, first: int, end: int) -> set[date]:
    """The days that rows with seqs from `first` to before `end` may be of."""
    return {day for least, most, day in _parts(snapshot) if least < end and most >= first}


def rows_between(
    store: SegmentStore,
    snapshot: Snapshot,
    first: int,
    end: int,
    *,
    only_seqs: bool = False,
    dictionaries: Iterable[str] = (),
) -> Iterator[tuple[date, pa.Table]]:
    """The rows whose seq is from `first` to before `end`, each part of one day, in no order.

    A row group at a time, AUDIT_SCHEMA or only `seq`. Where all of a row group is wanted, those of
    the columns `dictionaries` that it has so are not decoded. Raises StoreFault.
    """
    part = snapshot.between(first, end)
    for batch in part.batches:
        yield batch.day, _between(decode_batch(batch), first, end)
    for segment in part.segments:
        with store.local([segment]), open_segment(store.root, segment, dictionaries) as file:
            for index in range(file.row_group_count):
                least, most = file.seq_bounds(index)
                if only_seqs and least < end and most >= first:
                    yield segment.day, _between(file.some_columns(index, ()), first, end)
                elif dictionaries and first <= least and most < end:
                    yield segment.day, file.encoded_rows(index)
                elif least < end and most >= first:
                    yield segment.day, _between(file.rows_around(index, first, end), first, end)


SCANNED_ROWS: Final = 2**18
"""Of so many rows at most `rows_after` reads the seqs, if the first ones are far apart."""
_DENSE: Final = 4
"""They are if less than one in so many is among the next `limit` seqs."""


def rows_after(
    store: SegmentStore, snapshot: Snapshot, seq: int, limit: int, *, only_seqs: bool = False
) -> tuple[pa.Table, int]:
    """The first rows after `seq` by seq, at most `limit`; and the seq up to which these are all.

    There may be none and still some further on. Raises StoreFault.
    """
    first = next_seq(snapshot, seq)
    if first is None:
        return NO_ROWS, seq
    end = _scan_end(snapshot, first, limit)
    rows = _merged(store, snapshot, first, end, only_seqs=only_seqs)
    if len(rows) * _DENSE < limit and next_seq(snapshot, end - 1) is not None:
        end = _scan_end(snapshot, first, SCANNED_ROWS)
        seqs = _merged(store, snapshot, first, end, only_seqs=True).column("seq")
        end = seqs[limit].as_py() if len(seqs) > limit else end
        rows = _merged(store, snapshot, first, end, only_seqs=only_seqs)
    return rows, end - 1


def _merged(
    store: SegmentStore, snapshot: Snapshot, first: int, end: int, *, only_seqs: bool
) -> pa.Table:
    """The rows from `first` to before `end`, by seq."""
    parts = rows_between(store, snapshot, first, end, only_seqs=only_seqs)
    names = ["seq"] if only_seqs else NO_ROWS.schema.names
    rows = pa.concat_tables([NO_ROWS.select(names), *(part.select(names) for _, part in parts)])
    seqs = rows.column("seq")
    # Those of a journal are: to sort them costs more than to read them.
    is_sorted = pc.all(pc.less(seqs[:-1], seqs[1:])).as_py()
    return rows if is_sorted else rows.sort_by("seq")


def _scan_end(snapshot: Snapshot, first: int, count: int) -> int:
    """The last seq before which at most `count` rows from `first` on can be."""
    parts = [(least, most + 1, rows) for least, most, rows in snapshot.spans if most >= first]

    def rows_before(end: int) -> int:
        return sum(
            min(rows, max(0, min(end, stop) - max(least, first))) for least, stop, rows in parts
        )

    last = max(stop for _, stop, _ in parts)
    return first + bisect_right(range(first, last + 1), count, key=rows_before) - 1


def split_by_day(rows: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """`rows` by their day."""
    days = pc.cast(rows.column("created_at"), pa.timestamp("us")).cast(pa.date32())
    for day in pc.unique(days).to_pylist():
        yield day, rows.filter(pc.equal(days, pa.scalar(day, pa.date32())))


def _between(rows: pa.Table, first: int, end: int) -> pa.Table:
    seq = rows.column("seq")
    return rows.filter(pc.and_(pc.greater_equal(seq, first), pc.less(seq, end)))


def leaves_between(
    store: SegmentStore,
    snapshot: Snapshot,
    first: int,
    end: int,
    day_keys: Mapping[date, bytes],
) -> list[Leaf]:
    """The leaves of those rows, in order. Raises as `leaf_parts`."""
    rows = rows_between(store, snapshot, first, end, dictionaries=TEXT_DICTIONARIES)
    return sorted(chain.from_iterable(leaf_parts(rows, snapshot.tenant_id, day_keys)))


def leaf_parts(
    by_day: Iterable[tuple[date, pa.Table]], tenant_id: str, day_keys: Mapping[date, bytes]
) -> Iterator[list[Leaf]]:
    """The leaves of rows that come with their day, some thousands at a time, in no order.

    A row of a day without a key is a LeavesDiffer: the key is destroyed when the day is pruned.
    Raises StoreFault.
    """
    for day, rows in _joined(by_day):
        if day not in day_keys:
            raise LeavesDiffer(f"rows of {day}, which is pruned, are still stored")
        hashes = leaf_hashes(entries(rows, tenant_id, day_keys[day]))
        yield list(zip(rows.column("seq").to_pylist(), hashes, strict=True))


def _joined(by_day: Iterable[tuple[date, pa.Table]]) -> Iterator[tuple[date, pa.Table]]:
    """The same rows in fewer tables: to encode a table of a few rows takes as long as of many.

    Of long rows no two full row groups are joined: encoding takes five times what they take.
    """
    kind: tuple[date, pa.Schema] | None = None
    held: list[pa.Table] = []
    rows = size = 0
    for day, table in by_day:
        is_full = rows >= _JOINED_ROWS or size >= _JOINED_BYTES
        if kind is not None and (is_full or kind != (day, table.schema)):
            yield kind[0], pa.concat_tables(held)
            kind, held, rows, size = None, [], 0, 0
        if table.num_rows:
            kind = day, table.schema
            held.append(table)
            rows += table.num_rows
            size += table.get_total_buffer_size()
    if kind is not None:
        yield kind[0], pa.concat_tables(held)


def pack_seqs(seqs: Sequence[int]) -> bytes:
    """First seqs of groups, as they are stored: their differences, compressed, and a checksum.

    Compression has one, too, but not of the bits that fill its last byte.
    """
    differences = [seq - before for seq, before in zip(seqs, [0, *seqs], strict=False)]
    content = zlib.compress(struct.pack(f"<{len(differences)}q", *differences))
    return content + _CHECKSUM.pack(zlib.crc32(content))


def unpack_seqs(stored: bytes) -> list[int]:
    """See `pack_seqs`. Raises LeavesDiffer."""
    stream = zlib.decompressobj()
    try:
        differences = stream.decompress(stored)
    except zlib.error as error:
        raise LeavesDiffer(_SEQS_DAMAGED) from error
    checksum = stream.unused_data
    content = stored[: len(stored) - len(checksum)]
    # Nodes of an earlier version store none, and read over this one.
    is_whole = stream.eof and checksum in {b"", _CHECKSUM.pack(zlib.crc32(content))}
    if not is_whole or len(differences) % _SEQ.size:
        raise LeavesDiffer(_SEQS_DAMAGED)
    return list(accumulate(each for (each,) in _SEQ.iter_unpack(differences)))


@dataclass(frozen=True, slots=True)
class PrunedLeaf:
    """A leaf whose row is deleted: its place in its group, the seq and the hash it had."""

    place: int
    seq: int
    hash: bytes


def pack_pruned(leaves: Iterable[PrunedLeaf]) -> bytes:
    """The pruned leaves of a group, as they are stored: with a checksum, as seqs have no hash."""
    content = b"".join(_LEAF.pack(leaf.place, leaf.seq, leaf.hash) for leaf in leaves)
    return _CHECKSUM.pack(zlib.crc32(content)) + content


def unpack_pruned(content: bytes) -> list[PrunedLeaf]:
    """See `pack_pruned`. Raises LeavesDiffer."""
    checksum, leaves = content[: _CHECKSUM.size], content[_CHECKSUM.size :]
    if checksum != _CHECKSUM.pack(zlib.crc32(leaves)) or len(leaves) % _LEAF.size:
        raise LeavesDiffer("the stored hashes of pruned rows are damaged")
    return [PrunedLeaf(*fields) for fields in _LEAF.iter_unpack(leaves)]


class Rows(IntEnum):
    """What is stored of the rows of a group: as it is stored of each group of a tile.

    One flipped bit makes none of another.
    """

    STORED = 0
    """All, or all but pruned leaves."""

    PRUNED = 1
    LOST = 6
    """Fewer than were signed, because a segment was given up: none of them is proved any more."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of leaves: its rows' seqs are from `first_seq` to before `end_seq`.

    `pruned` are the pruned leaves of a group of which rows are stored.
    """

    number: int
    first_seq: int
    end_seq: int
    size: int = GROUP
    rows: Rows = Rows.STORED
    pruned: tuple[PrunedLeaf, ...] = ()

    @property
    def first_index(self) -> int:
        """Its first leaf."""
        return self.number * GROUP

    @property
    def span(self) -> str:
        """Its rows, as people are told of them."""
        return f"rows {audit_id(self.first_seq)} to {audit_id(self.end_seq - 1)}"

    @property
    def is_full(self) -> bool:
        """Whether it takes no more leaves."""
        return self.size == GROUP

    @property
    def unpruned(self) -> int:
        """How many of its rows are not pruned."""
        return 0 if self.rows is Rows.PRUNED else self.size - len(self.pruned)

    def among(self, leaves: Sequence[Leaf]) -> Sequence[Leaf]:
        """Its own of `leaves`, which are in order."""
        start = bisect_left(leaves, (self.first_seq, b""))
        return leaves[start : bisect_left(leaves, (self.end_seq, b""))]

    def places(self, rows: Sequence[Leaf]) -> list[tuple[int, Leaf]]:
        """The place of each of its `rows`, in their order: those that no pruned leaf takes.

        Raises LeavesDiffer if there are more or fewer.
        """
        if len(rows) != self.unpruned:
            text = f"{len(rows)} are stored, {self.unpruned} were signed"
            raise LeavesDiffer(f"{self.span}: {text}")
        taken = {leaf.place for leaf in self.pruned}
        free = (place for place in range(self.size) if place not in taken)
        return list(zip(free, rows, strict=False))

    def leaves(self, rows: Sequence[Leaf]) -> list[Leaf]:
        """All its leaves, of which those of `rows` are not pruned. Raises LeavesDiffer."""
        known = {leaf.place: (leaf.seq, leaf.hash) for leaf in self.pruned}
        known |= dict(self.places(rows))
        return [known[place] for place in sorted(known)]
