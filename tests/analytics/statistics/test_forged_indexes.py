"""Index files whose checksums are right and whose content is not: damaged like any other."""

import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from analytics.model.filters import Query, parse_query
from analytics.query.buckets import Bucket
from analytics.storage import index_builder
from analytics.storage.index_blocks import DamagedIndex
from analytics.storage.segment_index import open_index
from analytics.storage.segment_metadata import Segment
from tests.analytics.index_version_2 import write_version_2
from tests.analytics.samples import SampleLake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
_CODEC = pa.Codec("zstd", compression_level=12)
_HEADER = struct.Struct("<4sHxxIII")
_NUMBERS = struct.Struct("<4sI")

Change = Callable[[list[Any], bytearray], object]
"""Changes a directory as plain lists, and the blocks behind it."""


def forge(path: Path, change: Change, plain_length: int | None = None) -> None:
    """Change the index file at `path` and make all its checksums right again."""
    content = path.read_bytes()
    magic, version, length, packed_length, _ = _HEADER.unpack_from(content)
    end = _HEADER.size + packed_length
    plain = msgspec.msgpack.decode(
        _CODEC.decompress(content[_HEADER.size : end], length).to_pybytes()
    )
    blocks = bytearray(content[end:])
    change(plain, blocks)
    encoded = msgspec.msgpack.encode(plain)
    packed = bytes(_CODEC.compress(encoded))
    lengths = plain_length or len(encoded), len(packed)
    header = _HEADER.pack(magic, version, *lengths, 0)[:-4] if version > 2 else b""
    crc32 = zlib.crc32(packed, zlib.crc32(header) if header else 0)
    path.write_bytes(_HEADER.pack(magic, version, *lengths, crc32) + packed + blocks)


def of_block(place: int, value: object) -> Change:
    """One number of the first block of the packages."""

    def change(plain: list[Any], _: bytearray) -> None:
        plain[5][0][2][0][place] = value

    return change


def of_column(place: int, value: object) -> Change:
    """One part of the column of packages."""

    def change(plain: list[Any], _: bytearray) -> None:
        plain[5][0][place] = value

    return change


def of_no_text(place: int, heads: object) -> Change:
    """Heads of the packages whose value `??` is not UTF-8."""
    encoded = msgspec.msgpack.encode(heads).replace(b"??", b"\xff\xfe")
    return of_column(place, msgspec.Raw(encoded))


def of_hours(plain: list[Any], _: bytearray) -> None:
    plain[4][0][3] = [4]


def of_another_kind(plain: list[Any], _: bytearray) -> None:
    plain[4].append(plain[4][0])


def of_groups(number: int) -> Change:
    def change(plain: list[Any], _: bytearray) -> None:
        plain[3] = number

    return change


def of_lines(rewrite: Callable[[bytearray, int], object], codes: bytes = b"BBBB") -> Change:
    """The lines of the packages: three values, of which each number is a byte."""

    def change(plain: list[Any], blocks: bytearray) -> None:
        block = plain[5][0][2][0]
        _, offset, size, raw_size, lines, *_ = block
        data = bytes(blocks[offset : offset + size])
        raw = bytearray(_CODEC.decompress(data[_NUMBERS.size :], raw_size))
        assert lines == 3
        rewrite(raw, lines)
        forged = _NUMBERS.pack(codes, 0) + bytes(_CODEC.compress(bytes(raw)))
        block[1], block[2], block[5] = len(blocks), len(forged), zlib.crc32(forged)
        blocks += forged

    return change


def set_kind(raw: bytearray, lines: int) -> None:
    raw[lines] = 9


def set_text(raw: bytearray, _: int) -> None:
    raw[-1] = 0xFF


def keep(*_: object) -> None:
    """Change nothing."""


FORGERIES = {
    "no group a bit": of_groups(0),
    "groups a bit below zero": of_groups(-1),
    "two hours": of_hours,
    "a kind more": of_another_kind,
    "nulls of no kind": of_column(1, []),
    "heads that are none": of_column(3, [[[1, 2]], 0]),
    "heads by decision that are none": of_column(4, [[3]]),
    "a head that is no text": of_no_text(3, [[["??", 2]], 0]),
    "heads by decision that are no text": of_no_text(4, [["BLOCKED", [[["??", 2]], 0]]]),
    "rows of no kind": of_block(6, []),
    "an offset before the file": of_block(1, -1),
    "an offset beyond all files": of_block(1, 2**63),
    "a block of a terabyte": of_block(2, 2**40),
    "a size below zero": of_block(2, -1),
    "a terabyte of text": of_block(3, 2**40),
    "text below zero": of_block(3, -1),
    "no lines": of_block(4, 0),
    "2**29 lines": of_block(4, 2**29),
    "lines below zero": of_block(4, -(2**29)),
    "a line of no kind": of_lines(set_kind),
    "numbers that are fractions": of_lines(keep, b"BdBB"),
    "numbers of no type": of_lines(keep, b"B?BB"),
}


def answers(lake: SampleLake) -> list[object]:
    reader, snapshot = lake.reader, lake.snapshot()
    packages = [parse_query({"package": [text]}) for text in ("a", "ab*", "!b")]
    blocked = parse_query({"decision": ["BLOCKED"]})
    return [
        [reader.page(snapshot, query, 10)["seq"].to_pylist() for query in packages],
        [reader.count(snapshot, query) for query in packages],
        [reader.count_values(snapshot, query, "package_name", 2) for query in (Query(), blocked)],
        reader.count_over_time(snapshot, Query(), Bucket.HOUR),
    ]


RIGHT = [
    [[1], [3, 2], [3, 2, 1]],
    [1, 2, 3],
    [[("ab", 2), ("a", 1)]] * 2,
    {(MIDNIGHT, "BLOCKED"): 4},
]


@pytest.fixture
def segment(lake: SampleLake, monkeypatch: pytest.MonkeyPatch) -> Segment:
    """Four rows in an index with heads."""
    monkeypatch.setattr(index_builder, "HEAD_ROWS_MIN", 1)
    names = ["a", "ab", "ab", "b"]
    lake.add([sample_row(MIDNIGHT, package_name=name) for name in names], is_sealed=True)
    return lake.segments[0]


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_index_is_reported_and_the_rows_are_read(lake, segment, change):
    forge(segment.index_path(lake.root), change)

    assert answers(lake) == RIGHT
    assert lake.reader.planner.index.take_damaged() == [segment]


@pytest.mark.parametrize("rewrite", [set_kind, set_text])
def test_values_are_not_listed_from_forged_lines(lake, segment, rewrite):
    forge(segment.index_path(lake.root), of_lines(rewrite))
    index = lake.reader.planner.index

    assert index.all_values(segment, "package_name", ()) is None
    assert index.take_damaged() == [segment]


def test_an_index_with_other_bytes_and_the_same_content_is_whole(lake, segment):
    """The tests above fail because of what was forged."""
    forge(segment.index_path(lake.root), of_lines(keep))

    assert answers(lake) == RIGHT
    assert lake.reader.planner.index.take_damaged() == []


def test_the_size_of_a_forged_directory_is_not_believed(lake, segment):
    forge(segment.index_path(lake.root), keep, plain_length=2**31)
    with pytest.raises(DamagedIndex, match="too long"), open_index(lake.root, segment):
        pass

    assert answers(lake) == RIGHT
    assert lake.reader.planner.index.take_damaged() == [segment]


def test_values_of_version_2_do_not_grow_without_end(lake, segment):
    write_version_2(lake.root, segment)

    def repeat(plain: list[Any], blocks: bytearray) -> None:
        block = plain[5][0][2][0]
        lines, text = 2, b"a" * 65_000
        numbers = [[0, 65_000], [65_000, 0], [0, 0], [1, 1], [1, 1]]
        planes = [
            b"".join(number.to_bytes(width, "little")[place : place + 1] for number in column)
            for column, width in zip(numbers, (2, 2, 1, 4, 8), strict=True)
            for place in range(width)
        ]
        raw = b"".join([*planes, text])
        forged = bytes(_CODEC.compress(raw))
        block[1:6] = [len(blocks), len(forged), len(raw), lines, zlib.crc32(forged)]
        blocks += forged

    forge(segment.index_path(lake.root), repeat)

    assert answers(lake) == RIGHT
    assert lake.reader.planner.index.take_damaged() == [segment]
