"""The blocks of a segment index: sorted values with their counts, compressed and checksummed.

A block holds the lines of one column between two values, as columns: how long each value is, its
kind, rows and row groups, each in as many bytes as the largest of the block needs, and then the
text of all values. A search slices that text where it looks, and decodes nothing else.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from operator import or_
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from analytics.model.errors import StoreFault

BLOCK_LINES: Final = 2_048

VALUE_BYTES_MAX: Final = 32_768
"""A column with a longer value is not indexed: a block has thousands of values."""

BLOCK_BYTES_MAX: Final = BLOCK_LINES * (VALUE_BYTES_MAX + 64)
"""No block takes more, compressed or not: a line has four numbers of at most 8 bytes."""

SPLIT_LINES: Final = 64
"""Blocks of at least this many lines compress numbers and text separately: each has its own
statistics, which saves 7 %. In shorter blocks the second frame would take more than that."""

LINE_SCHEMA: Final = pa.schema(
    [("value", pa.string()), ("kind", pa.int32()), ("bit", pa.uint64()), ("rows", pa.int64())]
)
"""Lines before they are encoded; `bit` has a bit for each of their row groups."""

_CODES: Final[tuple[Literal["i", "Q", "q"], ...]] = ("i", "Q", "q")
"""The array types of the numbers of LINE_SCHEMA."""
_CODEC: Final = pa.Codec("zstd", compression_level=9)
_WIDTHS: Final = b"BHIQ"
"""The array types of the numbers of a block."""
_HEADER: Final = struct.Struct("<4sI")
"""The array types of the four numbers, and the size of their frame; 0 if the text is in it."""


class DamagedIndex(StoreFault):
    """An index file that is not what was written. It is derived: rebuild it."""


class Line(NamedTuple):
    """`rows` rows have `value`, and the event and decision that `kind` stands for.

    They are in the row groups whose bits are set in `groups`.
    """

    value: bytes
    kind: int
    rows: int
    groups: int


@dataclass(slots=True)
class RangeCounts:
    """What the lines of a range of values add up to: rows by kind, and their row groups."""

    rows: list[int]
    groups: int = 0


_Lines = Annotated[int, msgspec.Meta(ge=1, le=BLOCK_LINES)]
_BlockBytes = Annotated[int, msgspec.Meta(ge=0, le=BLOCK_BYTES_MAX)]
_Offset = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class BlockEntry(msgspec.Struct, frozen=True, array_like=True):
    """Where a block lies, counted from the end of the directory, and what it adds up to."""

    first: bytes
    offset: _Offset
    size: _BlockBytes
    raw_size: _BlockBytes
    lines: _Lines
    crc32: int
    kind_rows: tuple[int, ...]
    groups: int


def encode_blocks(lines: pa.Table, kinds: int, offset: int) -> list[tuple[BlockEntry, bytes]]:
    """`lines` (LINE_SCHEMA, sorted by value) of `kinds` different kinds as blocks at `offset`."""
    values, *numbers = (column.combine_chunks() for column in lines.columns)
    kind, groups, rows = (
        memoryview(column.buffers()[1] or b"")[column.offset * width :].cast(code)
        for column, code, width in zip(numbers, _CODES, (4, 8, 8), strict=True)
    )
    _, offsets, content = values.buffers()
    ends = memoryview(offsets or b"")[values.offset * 4 :].cast("i")
    blocks = []
    for start in range(0, lines.num_rows, BLOCK_LINES):
        part = slice(start, min(start + BLOCK_LINES, lines.num_rows))
        own_ends = ends[start : part.stop + 1]
        text = memoryview(content or b"")[own_ends[0] : own_ends[-1]].tobytes()
        block = _encoded(own_ends, text, kind[part], groups[part], rows[part], kinds, offset)
        blocks.append(block)
        offset += block[0].size
    return blocks


def _encoded(
    ends: Sequence[int],
    text: bytes,
    kind: Sequence[int],
    groups: Sequence[int],
    rows: Sequence[int],
    kinds: int,
    offset: int,
) -> tuple[BlockEntry, bytes]:
    kind_rows = [0] * kinds
    for own, count in zip(kind, rows, strict=True):
        kind_rows[own] += count
    lengths = [end - start for start, end in pairwise(ends)]
    packed = [_narrowest(numbers) for numbers in (lengths, kind, rows, groups)]
    raw = b"".join(map(_to_bytes, packed))
    frame = bytes(_CODEC.compress(raw)) if len(kind) >= SPLIT_LINES else b""
    codes = "".join(numbers.typecode for numbers in packed).encode()
    rest = bytes(_CODEC.compress(text if frame else raw + text))
    data = b"".join([_HEADER.pack(codes, len(frame)), frame, rest])
    entry = BlockEntry(
        first=text[: lengths[0]],
        offset=offset,
        size=len(data),
        raw_size=len(raw) + len(text),
        lines=len(kind),
        crc32=zlib.crc32(data),
        kind_rows=tuple(kind_rows),
        groups=reduce(or_, groups),
    )
    return entry, data


class IndexBlock:
    """The lines of one block."""

    def __init__(self, lengths: Iterable[int], text: bytes, *numbers: Sequence[int]) -> None:
        """`numbers` are the kind, rows and row groups of each line."""
        self._ends = list(accumulate(lengths, initial=0))
        self._text = text
        self._kinds, self._rows, self._groups = numbers

    def lines(self) -> Iterator[Line]:
        """All lines, in order."""
        values = map(self._value, range(len(self._kinds)))
        return map(Line, values, self._kinds, self._rows, self._groups)

    def add_range(self, low: bytes, high: bytes, counts: RangeCounts) -> None:
        """Add the lines with low <= value < high to `counts`."""
        places = range(len(self._kinds))
        first = bisect_left(places, low, key=self._value)
        for place in range(first, bisect_left(places, high, lo=first, key=self._value)):
            counts.rows[self._kinds[place]] += self._rows[place]
            counts.groups |= self._groups[place]

    def _value(self, place: int) -> bytes:
        return self._text[self._ends[place] : self._ends[place + 1]]


def decode_block(data: bytes, entry: BlockEntry, version: int) -> IndexBlock:
    """A block that an index of this `version` has; raises DamagedIndex if it was changed since."""
    # Damaged bytes can decompress without an error, and would then count other rows.
    if zlib.crc32(data) != entry.crc32:
        raise DamagedIndex("a block does not match its checksum")
    try:
        decoded = _decoded_version_2 if version == 2 else _decoded
        return decoded(data, entry.lines, entry.raw_size)
    except (pa.ArrowException, OSError, struct.error, ValueError) as error:
        raise DamagedIndex("a block does not decompress") from error


def _decoded(data: bytes, lines: int, raw_size: int) -> IndexBlock:
    codes, frame_size = _HEADER.unpack_from(data)
    if codes.strip(_WIDTHS):
        raise ValueError("numbers of another type")
    columns = [array(chr(code)) for code in codes]
    sizes = [lines * numbers.itemsize for numbers in columns]
    rest = data[_HEADER.size + frame_size :]
    if frame_size:
        frame = data[_HEADER.size : _HEADER.size + frame_size]
        raw, text = _decompressed(frame, sum(sizes)), _decompressed(rest, raw_size - sum(sizes))
    else:
        raw = _decompressed(rest, raw_size)
        text = raw[sum(sizes) :]
    for numbers, (start, end) in zip(columns, pairwise(accumulate(sizes, initial=0)), strict=True):
        _fill(numbers, raw[start:end])
    lengths, *rest_of_line = columns
    return IndexBlock(lengths, text, *rest_of_line)


def _decoded_version_2(data: bytes, lines: int, raw_size: int) -> IndexBlock:
    """Values front-coded, as bytes shared with the one before and the others; numbers in planes."""
    sizes = (4 * lines, 5 * lines, 8 * lines, raw_size - 17 * lines)
    if lines < 128:
        raw = _decompressed(data, raw_size)
    else:
        bounds = pairwise(accumulate(struct.unpack_from("<4I", data), initial=16))
        frames = [data[start:end] for start, end in bounds]
        raw = b"".join(map(_decompressed, frames, sizes))
    columns, at = [array(code) for code in "HHBIQ"], 0
    for numbers in columns:
        width = numbers.itemsize
        content = bytearray(lines * width)
        for place in range(width):
            content[place::width] = raw[at : at + lines]
            at += lines
        _fill(numbers, bytes(content))
    values, before = [], b""
    for shared, length in zip(*columns[:2], strict=True):
        before = before[:shared] + raw[at : at + length]
        if len(before) > VALUE_BYTES_MAX:
            raise ValueError("a value is too long")
        at += length
        values.append(before)
    return IndexBlock(map(len, values), b"".join(values), *columns[2:])


def _decompressed(frame: bytes, size: int) -> bytes:
    return bytes(_CODEC.decompress(frame, size))


def _narrowest(numbers: Sequence[int]) -> "array[int]":
    """`numbers` in as few bytes each as the largest needs."""
    size = max(numbers).bit_length()
    return array(next(code for code in "BHIQ" if size <= 8 * array(code).itemsize), numbers)


def _to_bytes(numbers: "array[int]") -> bytes:
    """Little-endian."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _fill(numbers: "array[int]", raw: bytes) -> None:
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
