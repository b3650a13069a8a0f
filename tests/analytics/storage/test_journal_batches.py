"""Journal batches: rows as bytes, split by day, and detected when damaged."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.journal_batches import (
    CorruptBatch,
    JournalBatch,
    decode_batch,
    decode_batches,
    in_parts,
    intact,
    split_by_day,
    with_checksum,
)
from tests.analytics.samples import DAY, NOON, TENANT, batch_of, sample_row

MIDNIGHT = datetime(2026, 3, 5, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INSTANTS = st.datetimes(timezones=st.just(UTC))
ROWS = st.builds(
    sample_row,
    created_at=INSTANTS,
    received_at=INSTANTS,
    event=TEXT,
    package_name=st.none() | TEXT,
    decision=st.none() | TEXT,
    actor=TEXT,
    subject=st.none() | TEXT,
    payload=st.dictionaries(TEXT, TEXT, max_size=3).map(json.dumps),
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.integers(1, 2**62))
def test_what_was_encoded_is_what_is_decoded(rows, first_seq):
    decoded = decode_batch(batch_of(rows, first_seq, DAY))

    assert decoded.schema.equals(AUDIT_SCHEMA)
    assert decoded.to_pylist() == [
        {"seq": seq} | msgspec.structs.asdict(row) for seq, row in enumerate(rows, start=first_seq)
    ]


def test_midnight_parts_two_days():
    before = sample_row(MIDNIGHT - timedelta(microseconds=1))
    at = sample_row(MIDNIGHT)
    after = sample_row(MIDNIGHT + timedelta(microseconds=1))

    assert split_by_day([after, before, at]) == {
        date(2026, 3, 4): [before],
        date(2026, 3, 5): [after, at],
    }


def test_an_instant_is_split_by_its_utc_day_not_its_own():
    """23:30 an hour west of Greenwich is tomorrow."""
    row = sample_row(datetime.fromisoformat("2026-03-04T23:30:00-01:00"))

    assert list(split_by_day([row])) == [date(2026, 3, 5)]


@given(st.lists(ROWS, max_size=20))
def test_splitting_loses_and_reorders_nothing(rows):
    days = split_by_day(rows)

    for day, day_rows in days.items():
        assert day_rows == [row for row in rows if row.created_at.date() == day]
    assert sum(map(len, days.values())) == len(rows)


def test_batches_are_joined_in_the_order_given():
    one, other = batch_of([sample_row()] * 2, 1), batch_of([sample_row()] * 3, 7)

    assert decode_batches([other, one]).column("seq").to_pylist() == [7, 8, 9, 1, 2]
    assert decode_batches([]).equals(AUDIT_SCHEMA.empty_table())


WHOLE = batch_of([sample_row(NOON, package_name=f"p{n}") for n in range(50)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"not arrow at all",
        WHOLE.data[:100],
        WHOLE.data[: len(WHOLE.data) // 2],
        WHOLE.data[:-20],
        WHOLE.data[20:],
        bytes(len(WHOLE.data)),
    ],
)
def test_bytes_that_do_not_decode_are_corrupt(data):
    """An empty table would make rows vanish silently."""
    with pytest.raises(CorruptBatch):
        decode_batch(replace(WHOLE, data=data))


@pytest.mark.parametrize("rows", [0, 49, 51])
def test_a_batch_that_holds_another_number_of_rows_is_corrupt(rows):
    """The catalog's number gives the rows their seq."""
    with pytest.raises(CorruptBatch):
        decode_batch(replace(WHOLE, rows=rows))


def test_a_batch_of_another_schema_is_corrupt():
    other = pa.table({"event": ["blocklist_hit"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, other.schema) as writer:
        writer.write_table(other)

    with pytest.raises(CorruptBatch):
        decode_batch(replace(WHOLE, rows=1, data=bytes(sink.getvalue())))


def test_one_flipped_byte_is_either_corrupt_or_leaves_as_many_rows():
    positions = range(0, len(WHOLE.data), 31)
    corrupt = 0
    for position in positions:
        data = bytearray(WHOLE.data)
        data[position] ^= 0xFF
        try:
            decoded = decode_batch(replace(WHOLE, data=bytes(data)))
        except CorruptBatch:
            corrupt += 1
            continue
        decoded.validate(full=True)
        assert decoded.num_rows == WHOLE.rows, position

    assert 0 < corrupt < len(positions)


def test_parts_end_at_rows_and_at_decoded_bytes():
    short, long = (
        batch_of([sample_row(payload=text)] * 2)
        for text in ("{}", f'{{"registry":"{"a" * 100_000}"}}')
    )
    assert len(long.data) < 10_000

    def sizes(batches, rows_max, bytes_max):
        return [len(part) for part in in_parts(batches, rows_max, bytes_max)]

    assert sizes([], 4, 10**9) == []
    assert sizes([short] * 5, 4, 10**9) == [2, 2, 1]
    assert sizes([long] * 5, 10**9, 650_000) == [3, 2]
    assert sizes([short, long, short], 10**9, 100_000) == [1, 1, 1]
    assert sizes([short], 1, 1) == [1]
    # One from before sizes were stored is decoded to learn it.
    assert sizes([replace(long, size=0)] * 5, 10**9, 650_000) == [3, 2]


def stored(rows, first_seq: int = 1, tenant_id: str = TENANT) -> JournalBatch:
    batch = replace(batch_of(rows, first_seq), tenant_id=tenant_id, received_at=NOON)
    return with_checksum(batch)


def test_a_stored_batch_is_decoded_as_before():
    rows = [sample_row(NOON + timedelta(seconds=second)) for second in range(3)]

    assert decode_batch(stored(rows)).equals(
        decode_batch(replace(batch_of(rows), received_at=NOON))
    )
    both = [stored(rows), batch_of(rows)]
    assert intact(both) == (both, [])


def test_every_flipped_bit_of_a_batch_is_found():
    batch = stored([sample_row(NOON)])
    for place in range(len(batch.data)):
        content = bytearray(batch.data)
        content[place] ^= 1 << place % 8

        damaged = replace(batch, data=bytes(content))
        with pytest.raises(CorruptBatch, match=f"{TENANT} on {DAY}, seq 1 to 1"):
            decode_batch(damaged)
        whole, faults = intact([damaged, batch])
        assert whole == [batch]
        assert len(faults) == 1


def test_a_batch_that_was_cut_is_found():
    rows = decode_batch(batch := stored([sample_row(NOON)]))
    for length in range(len(batch.data)):
        cut = replace(batch, data=batch.data[:length])
        if length == len(batch.data) - 8:
            assert decode_batch(cut).equals(rows)
            continue
        with pytest.raises(CorruptBatch):
            decode_batch(cut)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "org_other"},
        {"day": DAY + timedelta(days=1)},
        {"rows": 2},
        {"first_seq": 9},
        {"received_at": NOON + timedelta(microseconds=1)},
        {"min_created_at": NOON - timedelta(days=1)},
        {"max_created_at": NOON + timedelta(days=1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_batch_in_another_line_is_found(change):
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_batch(replace(stored([sample_row(NOON)]), **change))
