"""The blocks of a segment index: sorted values with their counts, compressed and checksummed.

A block holds the lines of one column between two values. Values are front-coded as in LevelDB's
sorted tables: each line stores the bytes it does not share with the line before, and every
RESTART_LINES lines one is stored whole, so that a search decodes a few lines of a block.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from analytics.model.errors import StoreFault

BLOCK_LINES: Final = 2_048
RESTART_LINES: Final = 32
"""Measured on 27,500 package names: 1,024 and 16 take 10 % more, 4,096 and 64 take 8 % less and
twice as long to search."""

SPLIT_LINES: Final = 128
"""Blocks of at least this many lines compress numbers and text separately: each has its own
statistics, which saves 15 %. In shorter blocks the frames' own bytes would take more than that."""

_LEVEL: Final = 12
_CODEC: Final = pa.Codec("zstd", compression_level=_LEVEL)
_LENGTH: Final = "H"
_ROWS: Final = "I"
_GROUPS: Final = "Q"
_KIND: Final = "B"
_SECTION_WIDTHS: Final = (
    2 * array(_LENGTH).itemsize,
    array(_KIND).itemsize + array(_ROWS).itemsize,
    array(_GROUPS).itemsize,
)
_FRAME_SIZES: Final = struct.Struct("<4I")
_CODING, _COUNTS, _PLACES, _TEXT = range(4)
"""The sections: what lines share and how long they are; kinds and rows; row groups; text."""


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


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """One block as it is stored, and what is needed to read it back.

    `kind_rows` and `groups` are those of all its lines together.
    """

    first: bytes
    lines: int
    raw_size: int
    crc32: int
    kind_rows: tuple[int, ...]
    groups: int
    data: bytes


def encode_block(lines: Sequence[Line], kinds: int) -> EncodedBlock:
    """`lines` as a block: sorted by value, at most BLOCK_LINES, of `kinds` different kinds."""
    total = RangeCounts([0] * kinds)
    shared, suffixes, before = array(_LENGTH), list[bytes](), b""
    for number, line in enumerate(lines):
        common = _common_prefix(before, line.value) if number % RESTART_LINES else 0
        shared.append(common)
        suffixes.append(line.value[common:])
        before = line.value
        total.rows[line.kind] += line.rows
        total.groups |= line.groups
    raw = b"".join(
        [
            _planes(shared),
            _planes(array(_LENGTH, map(len, suffixes))),
            _planes(array(_KIND, (line.kind for line in lines))),
            _planes(array(_ROWS, (line.rows for line in lines))),
            _planes(array(_GROUPS, (line.groups for line in lines))),
            *suffixes,
        ]
    )
    data = _compressed(raw, len(lines))
    return EncodedBlock(
        first=lines[0].value,
        lines=len(lines),
        raw_size=len(raw),
        crc32=zlib.crc32(data),
        kind_rows=tuple(total.rows),
        groups=total.groups,
        data=data,
    )


class Block:
    """One block. Its methods raise DamagedIndex if `data` is not what `encode_block` made.

    Most lookups are for a value that the block does not have: then its numbers of rows and row
    groups are not decompressed.
    """

    def __init__(self, data: bytes, lines: int, raw_size: int, crc32: int) -> None:
        # Damaged bytes can decompress without an error, and would then count other rows.
        if zlib.crc32(data) != crc32:
            raise DamagedIndex("a block does not match its checksum")
        self._count = lines
        with _damage():
            self._sections = _Sections(data, lines, raw_size)
            coding = self._sections.part(_CODING)
            self._shared = _unplaned(coding, 0, lines, _LENGTH)
            lengths = _unplaned(coding, 2 * lines, lines, _LENGTH)
            self._text = self._sections.part(_TEXT)
        self._offsets = list(accumulate(lengths, initial=0))

    def lines(self) -> Iterator[Line]:
        """All lines, in order."""
        kinds, rows, groups = self._numbers()
        for place, value in self._values(0):
            yield Line(value, kinds[place], rows[place], groups[place])

    def add_range(self, low: bytes, high: bytes, counts: "RangeCounts") -> None:
        """Add the lines with low <= value < high to `counts`."""
        start, value = self._find(low)
        if value is None or value >= high:
            return
        kinds, rows, groups = self._numbers()
        for place in range(start, self._find(high)[0]):
            counts.rows[kinds[place]] += rows[place]
            counts.groups |= groups[place]

    def _find(self, least: bytes) -> tuple[int, bytes | None]:
        """The place and value of the first line not less than `least`; None if there is none."""
        restarts = range(0, self._count, RESTART_LINES)
        # It may be among those after the restart before the first that is not less.
        start = max(0, bisect_left(restarts, least, key=self._suffix) - 1) * RESTART_LINES
        for place, value in self._values(start):
            if value >= least:
                return place, value
        return self._count, None

    def _values(self, start: int) -> Iterator[tuple[int, bytes]]:
        before = b""
        for place in range(start, self._count):
            before = before[: self._shared[place]] + self._suffix(place)
            yield place, before

    def _suffix(self, place: int) -> bytes:
        return self._text[self._offsets[place] : self._offsets[place + 1]]

    def _numbers(self) -> "tuple[array[int], array[int], array[int]]":
        """The kind, rows and row groups of each line."""
        count = self._count
        with _damage():
            counted = self._sections.part(_COUNTS)
            kinds = _unplaned(counted, 0, count, _KIND)
            rows = _unplaned(counted, count, count, _ROWS)
            groups = _unplaned(self._sections.part(_PLACES), 0, count, _GROUPS)
        return kinds, rows, groups


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, struct.error, ValueError) as error:
        raise DamagedIndex("a block does not decompress") from error


class _Sections:
    """The sections of a block, each decompressed when it is asked for."""

    def __init__(self, data: bytes, lines: int, raw_size: int) -> None:
        self._data = data
        self._bounds = _bounds(lines, raw_size)
        self._whole = b""
        self._frames: list[int] = []
        if lines < SPLIT_LINES:
            self._whole = bytes(_CODEC.decompress(data, raw_size))
        else:
            sizes = _FRAME_SIZES.unpack_from(data)
            self._frames = list(accumulate(sizes, initial=_FRAME_SIZES.size))

    def part(self, number: int) -> bytes:
        """One section. Raises what pyarrow raises for a damaged frame."""
        start, end = self._bounds[number : number + 2]
        if not self._frames:
            return self._whole[start:end]
        frame = self._data[self._frames[number] : self._frames[number + 1]]
        return bytes(_CODEC.decompress(frame, end - start))


def _bounds(lines: int, raw_size: int) -> list[int]:
    """Where the sections of a block's bytes begin, and where the last one ends."""
    return [*accumulate((lines * width for width in _SECTION_WIDTHS), initial=0), raw_size]


def _compressed(raw: bytes, lines: int) -> bytes:
    if lines < SPLIT_LINES:
        return bytes(_CODEC.compress(raw))
    bounds = pairwise(_bounds(lines, len(raw)))
    frames = [bytes(_CODEC.compress(raw[start:end])) for start, end in bounds]
    return b"".join([_FRAME_SIZES.pack(*map(len, frames)), *frames])


def _common_prefix(left: bytes, right: bytes) -> int:
    """How many bytes at their beginning are the same."""
    length = min(len(left), len(right))
    differing = int.from_bytes(left[:length], "big") ^ int.from_bytes(right[:length], "big")
    return length - (differing.bit_length() + 7) // 8


def _planes(numbers: "array[int]") -> bytes:
    """Little-endian numbers as their low bytes, then the next: small ones then compress well."""
    if sys.byteorder == "big":
        numbers.byteswap()
    content, width = numbers.tobytes(), numbers.itemsize
    return b"".join(content[place::width] for place in range(width))


def _unplaned(raw: bytes, at: int, count: int, code: str) -> "array[int]":
    """The `count` numbers that `_planes` wrote at `at`. Raises ValueError if they are cut off."""
    numbers = array(code)
    width = numbers.itemsize
    content = bytearray(count * width)
    for place in range(width):
        content[place::width] = raw[at + place * count : at + (place + 1) * count]
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
