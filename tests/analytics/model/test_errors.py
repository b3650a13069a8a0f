"""Damage: a store fault is said to be one. It is never an empty page."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from analytics.model.errors import StoreFault
from analytics.model.filters import Query, parse_query
from analytics.query.reader import Reader
from analytics.storage.snapshot import Snapshot
from tests.analytics.samples import NOON, SampleLake, sample_row
from tests.budgets import sample

ROWS = 50
ANSWERS: dict[str, Callable[[Reader, Snapshot], object]] = {
    "page": lambda reader, snapshot: reader.page(snapshot, Query(), ROWS),
    "count": lambda reader, snapshot: reader.count(
        snapshot, parse_query({"source_ip": ["!192.0.2.7"]})
    ),
    "stream": lambda reader, snapshot: list(reader.stream(snapshot, Query())),
    "row": lambda reader, snapshot: reader.row(snapshot, 3, Query()),
}


DAMAGES = {
    "missing": None,
    "emptied": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "other bytes": lambda content: b"PAR1" + bytes(1000) + b"PAR1",
    "footer": lambda content: content[:-6] + bytes([content[-6] ^ 0xFF]) + content[-5:],
}


@sample(6)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_damaged_file_is_a_fault_in_every_answer(lake, damage, answer):
    """An auditor who sees nothing must be able to conclude that nothing happened."""
    lake.add([sample_row()] * ROWS, is_sealed=True)
    lake.add([sample_row()] * ROWS, is_sealed=False)
    path = lake.segments[0].path(lake.root)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(StoreFault):
        ANSWERS[answer](lake.reader, lake.snapshot())


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_damaged_journal_batch_is_a_fault_in_every_answer(lake, answer):
    lake.add([sample_row()] * ROWS, is_sealed=False)
    (whole,) = lake.batches
    lake.batches[0] = replace(whole, data=whole.data[: len(whole.data) // 2])

    with pytest.raises(StoreFault):
        ANSWERS[answer](lake.reader, lake.snapshot())


@sample(24)
@pytest.mark.parametrize("place", range(50))
def test_one_flipped_byte_is_a_fault_or_still_a_page_of_rows(lake, place):
    """Not every flip is found: neither Parquet's writer nor DuckDB keeps a checksum of values."""
    _seal_distinct(lake)
    path = lake.segments[0].path(lake.root)
    content = bytearray(path.read_bytes())
    content[place * len(content) // 50] ^= 0xFF
    path.write_bytes(content)

    try:
        rows = lake.reader.page(lake.snapshot(), Query(), 2 * ROWS)
    except StoreFault:
        return
    assert rows.num_rows == ROWS


def _seal_distinct(lake: SampleLake) -> None:
    lake.add(
        [
            sample_row(NOON, package_name=f"package-{n}", payload=f'{{"n":{n}}}')
            for n in range(ROWS)
        ],
        is_sealed=True,
    )
