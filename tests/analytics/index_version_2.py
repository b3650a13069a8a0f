"""Index files as version 2 wrote them: front-coded values, no filters, no hours."""

import struct
import zlib
from array import array
from itertools import accumulate, islice, pairwise
from pathlib import Path

import msgspec
import pyarrow as pa

from analytics.storage.index_blocks import Line
from analytics.storage.segment_index import open_index
from analytics.storage.segment_metadata import Segment

_CODEC = pa.Codec("zstd", compression_level=12)
_WIDTHS = (4, 5, 8)
_RESTART_LINES = 32


def write_version_2(root: Path, segment: Segment, block_lines: int = 2_048) -> None:
    with open_index(root, segment) as index:
        directory = index.contents.directory
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(directory))
        *start, kinds, columns = plain
        blocks: list[bytes] = []
        for own, column in zip(columns, directory.columns, strict=True):
            lines = index.lines(column)
            own[2] = []
            while part := list(islice(lines, block_lines)):
                own[2].append(_entry(part, len(kinds), sum(map(len, blocks))))
                blocks.append(_block(part))
                own[2][-1][2], own[2][-1][5] = len(blocks[-1]), zlib.crc32(blocks[-1])
    without = [kind[:3] for kind in kinds], [column[:5] for column in columns]
    content = msgspec.msgpack.encode([*start, *without])
    packed = bytes(_CODEC.compress(content))
    header = struct.pack("<4sHxxIII", b"CSIX", 2, len(content), len(packed), zlib.crc32(packed))
    segment.index_path(root).write_bytes(b"".join([header, packed, *blocks]))


def _entry(lines: list[Line], kinds: int, offset: int) -> list[object]:
    rows, groups = [0] * kinds, 0
    for line in lines:
        rows[line.kind] += line.rows
        groups |= line.groups
    return [lines[0].value, offset, 0, len(_raw(lines)), len(lines), 0, rows, groups]


def _block(lines: list[Line]) -> bytes:
    raw = _raw(lines)
    if len(lines) < 128:
        return bytes(_CODEC.compress(raw))
    bounds = [*accumulate((len(lines) * width for width in _WIDTHS), initial=0), len(raw)]
    frames = [bytes(_CODEC.compress(raw[start:end])) for start, end in pairwise(bounds)]
    return b"".join([struct.pack("<4I", *map(len, frames)), *frames])


def _raw(lines: list[Line]) -> bytes:
    shared, suffixes, before = [], [], b""
    for number, line in enumerate(lines):
        common = 0
        while number % _RESTART_LINES and before[common : common + 1] == (
            line.value[common : common + 1] or None
        ):
            common += 1
        shared.append(common)
        suffixes.append(line.value[common:])
        before = line.value
    columns = [
        array("H", shared),
        array("H", map(len, suffixes)),
        array("B", (line.kind for line in lines)),
        array("I", (line.rows for line in lines)),
        array("Q", (line.groups for line in lines)),
    ]
    return b"".join([*map(_planes, columns), *suffixes])


def _planes(numbers: "array[int]") -> bytes:
    content, width = numbers.tobytes(), numbers.itemsize
    return b"".join(content[place::width] for place in range(width))
