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
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from analytics.model.errors import StoreFault

BLOCK_LINES: Final = 1_024
RESTART_LINES: Final = 16
"""Measured on 27,500 package names: larger blocks save 6 %, and take longer to search."""

SPLIT_LINES: Final = 128
"""From so many lines on, numbers and text are compressed apart: each kind has its own statistics,
which saves 15 %. In shorter blocks the frames' own bytes would take more than that."""

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


class DamagedIndex(StoreFault):
    """An index file that is not what was written. It is derived: build it anew."""


class Line(NamedTuple):
    """`rows` rows have `value` and the event and decision that `kind` numbers.

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
    """`lines`, sorted by value, at most BLOCK_LINES, of so many `kinds`."""
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
    """One decoded block. Raises DamagedIndex if `data` is not what `encode_block` made."""

    def __init__(self, data: bytes, lines: int, raw_size: int, crc32: int) -> None:
        if zlib.crc32(data) != crc32:
            raise DamagedIndex("a block does not match its checksum")
        try:
            raw = _decompressed(data, lines, raw_size)
        except (pa.ArrowException, OSError, struct.error, ValueError) as error:
            raise DamagedIndex("a block does not decompress") from error
        self._raw = raw
        self._count = lines
        self._shared, at = _unplaned(raw, 0, lines, _LENGTH)
        lengths, at = _unplaned(raw, at, lines, _LENGTH)
        self._kinds, at = _unplaned(raw, at, lines, _KIND)
        self._rows, at = _unplaned(raw, at, lines, _ROWS)
        self._groups, at = _unplaned(raw, at, lines, _GROUPS)
        self._offsets = list(accumulate(lengths, initial=at))

    def lines(self) -> Iterator[Line]:
        """All lines, in order."""
        for place, value in self._values(0):
            yield Line(value, self._kinds[place], self._rows[place], self._groups[place])

    def add_range(self, low: bytes, high: bytes, counts: "RangeCounts") -> None:
        """Add the lines with low <= value < high to `counts`."""
        start, end = self._place_of(low), self._place_of(high)
        for place in range(start, end):
            counts.rows[self._kinds[place]] += self._rows[place]
            counts.groups |= self._groups[place]

    def _place_of(self, value: bytes) -> int:
        """How many lines have a lesser value."""
        restarts = range(0, self._count, RESTART_LINES)
        # The first line that is not less may be among those after the restart before.
        start = max(0, bisect_left(restarts, value, key=self._suffix) - 1) * RESTART_LINES
        return next((place for place, held in self._values(start) if held >= value), self._count)

    def _values(self, start: int) -> Iterator[tuple[int, bytes]]:
        before = b""
        for place in range(start, self._count):
            before = before[: self._shared[place]] + self._suffix(place)
            yield place, before

    def _suffix(self, place: int) -> bytes:
        return self._raw[self._offsets[place] : self._offsets[place + 1]]


def _sections(lines: int, raw_size: int) -> list[tuple[int, int]]:
    """Where in a block's bytes that begins and ends which is compressed by itself."""
    if lines < SPLIT_LINES:
        return [(0, raw_size)]
    # What lines share and how long they are, then kinds and rows, then row groups, then text.
    bounds = [0, *accumulate(lines * width for width in _SECTION_WIDTHS), raw_size]
    return list(pairwise(bounds))


def _compressed(raw: bytes, lines: int) -> bytes:
    frames = [bytes(_CODEC.compress(raw[start:end])) for start, end in _sections(lines, len(raw))]
    if len(frames) == 1:
        return frames[0]
    return b"".join([_FRAME_SIZES.pack(*map(len, frames)), *frames])


def _decompressed(data: bytes, lines: int, raw_size: int) -> bytes:
    sections = _sections(lines, raw_size)
    if len(sections) == 1:
        return bytes(_CODEC.decompress(data, raw_size))
    ends = accumulate(_FRAME_SIZES.unpack_from(data), initial=_FRAME_SIZES.size)
    return b"".join(
        bytes(_CODEC.decompress(data[start:end], section_end - section_start))
        for (start, end), (section_start, section_end) in zip(pairwise(ends), sections, strict=True)
    )


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


def _unplaned(raw: bytes, at: int, count: int, code: str) -> "tuple[array[int], int]":
    """The `count` numbers that `_planes` wrote at `at`, and where they end."""
    numbers = array(code)
    width = numbers.itemsize
    content = bytearray(count * width)
    for place in range(width):
        content[place::width] = raw[at + place * count : at + (place + 1) * count]
    numbers.frombytes(bytes(content))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers, at + count * width
