"""The index file beside each segment: which values its columns hold, how often and where.

Layout: a fixed header, a directory (msgpack) and the blocks of each column. The directory names
the segment it was built from and the checksum of each block, so that a file that is damaged, or
that belongs to another segment, is recognised before anything is concluded from it. An index is
derived from its segment: a missing or damaged one is rebuilt.
"""

import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Annotated, Final

import msgspec
import pyarrow as pa

from analytics.model.schema import COLUMNS
from analytics.storage import value_filter
from analytics.storage.index_blocks import (
    BlockEntry,
    DamagedIndex,
    IndexBlock,
    Line,
    RangeCounts,
    decode_block,
)
from analytics.storage.segment_metadata import Segment

INDEXED_COLUMNS: Final = tuple(column.name for column in COLUMNS if column.is_indexed)
"""Columns that people search for single values of. The catalog counts those of few values.

A column that a schema version appends needs no new INDEX_VERSION: indexes from before are of
segments without it (`analytics.statistics.value_index`).
"""

HEAD_COLUMNS: Final = tuple(column.name for column in COLUMNS if column.has_head)
"""Columns whose most frequent values summaries and facets name.

Indexes from before `subject` and `ecosystem` have no head for them: their values are counted.
"""

HEAD_VALUES: Final = 32
INDEX_VERSION: Final = 3
_READ_VERSIONS: Final = (2, INDEX_VERSION)
"""Indexes of version 2 have no filters and no hours. They are read until they are built again."""

HOURS: Final = 24
GROUP_BITS: Final = 64
"""Row groups are told apart by one bit each; in larger segments several share one."""

_HEADER: Final = struct.Struct("<4sHxxIII")
_CRC_AT: Final = _HEADER.size - 4
_MAGIC: Final = b"CSIX"
_CODEC: Final = pa.Codec("zstd", compression_level=12)
_FIRST_READ_BYTES: Final = 32 * 1024
"""What is read first: enough for the header and directory of nearly every index."""

_DIRECTORY_BYTES_MAX: Final = 64 * 2**20
"""A directory takes no more, apart from its filters: some bytes for each row of the segment."""

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Kind(msgspec.Struct, frozen=True, array_like=True):
    """An event and decision, and how many rows of the segment have both: in all, and by hour."""

    event: str
    decision: str | None
    rows: int
    hours: tuple[int, ...] = ()


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The most frequent values of a column among some rows, with their number of rows.

    No other value has more than `others_max` of those rows.
    """

    values: tuple[tuple[str, int], ...]
    others_max: int


Heads = tuple[tuple[str | None, Head], ...]
"""The heads of the rows with each decision."""


class ColumnEntry(msgspec.Struct, frozen=True, array_like=True):
    """The index of one column. `nulls` are the rows without a value, by kind.

    `head` is the Head of all rows or None, `heads` are Heads: of HEAD_COLUMNS with several blocks
    or in files of many rows. Most queries ask for neither, and decoding them takes longer than all
    the rest of a directory. `filter` is empty if there are no values, or none is.
    """

    name: str
    nulls: tuple[int, ...]
    blocks: tuple[BlockEntry, ...]
    head: msgspec.Raw
    heads: msgspec.Raw
    filter: bytes = b""

    def may_have(self, value: bytes) -> bool:
        """False only if no row has `value`."""
        return not self.filter or value_filter.may_have(self.filter, value)

    @property
    def has_heads(self) -> bool:
        """Whether it has heads."""
        return self.head != NO_HEAD

    def decoded_heads(self) -> tuple[Head, Heads]:
        """Its head and its heads, which it has. Raises DamagedIndex."""
        try:
            return _head_decoder.decode(self.head), _heads_decoder.decode(self.heads)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedIndex("the heads of a column cannot be read") from error


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """What an index file holds, and of which segment. `groups_a_bit` row groups share a bit."""

    segment_id: str
    segment_size: int
    segment_sha256: str
    groups_a_bit: _Positive
    kinds: tuple[Kind, ...]
    columns: tuple[ColumnEntry, ...]

    def column(self, name: str) -> ColumnEntry | None:
        """The index of the column, or None if it has none: it has too many values."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        blocks = sum(len(column.blocks) for column in self.columns)
        encoded = sum(len(c.filter) + len(c.head) + len(c.heads) for c in self.columns)
        return 2_048 + 512 * blocks + 2 * encoded


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Directory)
_head_decoder: Final = msgspec.msgpack.Decoder(Head)
_heads_decoder: Final = msgspec.msgpack.Decoder(Heads)
NO_HEAD: Final = msgspec.Raw(_encoder.encode(None))
NO_HEADS: Final = msgspec.Raw(_encoder.encode(()))


def encode_heads(head: Head, heads: Heads) -> tuple[msgspec.Raw, msgspec.Raw]:
    """The `head` and `heads` of a ColumnEntry."""
    return msgspec.Raw(_encoder.encode(head)), msgspec.Raw(_encoder.encode(heads))


def share_bits(groups: int) -> int:
    """How many row groups share a bit in a segment with this number of `groups`."""
    return max(1, -(-groups // GROUP_BITS))


def encode_index(directory: Directory, blocks: Sequence[bytes]) -> bytes:
    """The content of an index file."""
    plain = _encoder.encode(directory)
    packed = bytes(_CODEC.compress(plain))
    header = _HEADER.pack(_MAGIC, INDEX_VERSION, len(plain), len(packed), 0)[:_CRC_AT]
    crc32 = zlib.crc32(packed, zlib.crc32(header))
    return b"".join([header, crc32.to_bytes(4, "little"), packed, *blocks])


@dataclass(frozen=True, slots=True)
class IndexContents:
    """The directory of an index file of `version`, and where the blocks begin in the file."""

    directory: Directory
    blocks_at: int
    version: int


@dataclass(frozen=True, slots=True)
class IndexReader:
    """The index that `read` (offset and size to bytes) reads. Methods may raise DamagedIndex."""

    read: Callable[[int, int], bytes]
    contents: IndexContents

    def count_range(self, column: ColumnEntry, low: bytes, high: bytes) -> RangeCounts:
        """The rows of `column` with low <= value < high."""
        counts = RangeCounts([0] * len(self.contents.directory.kinds))
        # Lines of one value may lie on both sides of a boundary between blocks.
        first = max(0, bisect_left(column.blocks, low, key=lambda block: block.first) - 1)
        last = bisect_left(column.blocks, high, key=lambda block: block.first)
        for number in range(first, last):
            entry = column.blocks[number]
            if first < number < last - 1:  # all of it lies in the range
                counts.rows = list(map(add, counts.rows, entry.kind_rows))
                counts.groups |= entry.groups
            else:
                self._block(entry).add_range(low, high, counts)
        return counts

    def lines(self, column: ColumnEntry) -> Iterator[Line]:
        """All lines of `column`, in order."""
        for entry in column.blocks:
            yield from self._block(entry).lines()

    def _block(self, entry: BlockEntry) -> IndexBlock:
        data = self.read(self.contents.blocks_at + entry.offset, entry.size)
        return decode_block(data, entry, self.contents.version)


@contextmanager
def open_index(
    root: Path, segment: Segment, contents: IndexContents | None = None
) -> Iterator[IndexReader]:
    """The index of `segment` below `root`; its `contents`, if they were read before.

    Raises DamagedIndex, also for a file that is not there.
    """
    try:
        descriptor = os.open(segment.index_path(root), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DamagedIndex(f"the index cannot be opened: {error.strerror}") from error

    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(descriptor, size, offset)
        except OSError as error:  # such as a bad sector
            raise DamagedIndex(f"the index cannot be read: {error.strerror}") from error

    try:
        # If the file was replaced since `contents` were read, its blocks fail their checksums.
        yield IndexReader(read, contents or _read_contents(read, segment))
    finally:
        os.close(descriptor)


def index_of(content: bytes, segment: Segment) -> IndexReader:
    """The index in `content`, that of a whole file. Raises DamagedIndex."""

    def read(offset: int, size: int) -> bytes:
        return content[offset : offset + size]

    return IndexReader(read, _read_contents(read, segment))


def _read_contents(read: Callable[[int, int], bytes], segment: Segment) -> IndexContents:
    start = read(0, _FIRST_READ_BYTES)
    if len(start) < _HEADER.size:
        raise DamagedIndex("the file is too short")
    magic, version, plain_length, length, crc32 = _HEADER.unpack_from(start)
    if magic != _MAGIC or version not in _READ_VERSIONS:
        raise DamagedIndex("the file is not an index of a version that is read")
    if max(plain_length, length) > _DIRECTORY_BYTES_MAX + 2 * len(INDEXED_COLUMNS) * segment.rows:
        raise DamagedIndex("the directory is too long")
    end = _HEADER.size + length
    packed = start[_HEADER.size : end]
    if len(packed) < length:
        packed += read(len(start), end - len(start))
    # Nothing is concluded from a directory that does not match: it names all other checksums.
    # Version 2 left the header out, so that no damage makes one version of the other.
    if zlib.crc32(packed, zlib.crc32(start[:_CRC_AT]) if version > 2 else 0) != crc32:
        raise DamagedIndex("the directory does not match its checksum")
    try:
        directory = _decoder.decode(_CODEC.decompress(packed, plain_length, asbytes=True))
    except (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException, OSError) as error:
        raise DamagedIndex("the directory cannot be read") from error
    _check_owner(directory, segment)
    _check_kinds(directory)
    return IndexContents(directory, end, version)


def _check_kinds(directory: Directory) -> None:
    """Raise DamagedIndex unless all counts by kind, and by hour, are of as many as there are."""
    kinds = len(directory.kinds)
    for column in directory.columns:
        if len(column.nulls) != kinds or any(len(b.kind_rows) != kinds for b in column.blocks):
            raise DamagedIndex("a column has counts of other kinds")
    if any(len(kind.hours) not in {0, HOURS} for kind in directory.kinds):
        raise DamagedIndex("a kind has counts of other hours")


def _check_owner(directory: Directory, segment: Segment) -> None:
    """Raise DamagedIndex unless the index was built from the file of `segment`."""
    built_from = (directory.segment_id, directory.segment_size)
    is_own = built_from == (segment.segment_id, segment.size)
    # Catalog lines from before digests were kept have none.
    if not is_own or segment.sha256 not in {"", directory.segment_sha256}:
        raise DamagedIndex("the file is the index of another segment")
