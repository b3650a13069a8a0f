"""The check: each way in which stored rows can be wrong is found, and named."""

import random
from dataclasses import replace
from datetime import date, timedelta

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.model.instants import format_us
from analytics.model.schema import AUDIT_SCHEMA, JOURNAL_SCHEMA
from analytics.storage import index_builder
from analytics.storage.audit_files import list_files
from analytics.storage.compaction import merge_segments
from analytics.storage.index_builder import IndexBuilder
from analytics.storage.integrity import (
    FaultKind,
    SeqSet,
    check_batches,
    check_files,
    check_segment,
)
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_index import INDEXED_COLUMNS
from analytics.storage.segment_metadata import VERSION_KEY
from analytics.storage.segment_writer import (
    PARQUET_OPTIONS,
    PARQUET_SCHEMA,
    newest_first,
    write_index,
)
from tests.analytics.index_version_2 import write_version_2
from tests.analytics.samples import (
    DAY,
    NOON,
    TENANT,
    batch_of,
    sample_row,
    sealed,
    sealed_by_version_1,
    table_of,
)

ROWS = [sample_row(NOON + timedelta(seconds=second)) for second in range(10)]


@pytest.fixture
def segment(tmp_path):
    """Ten rows, seq 1 to 10."""
    return sealed(tmp_path, "seg_1", ROWS)


def kinds(root, segment, seen: SeqSet | None = None) -> list[FaultKind]:
    found = check_segment(root, segment, seen or SeqSet(), lambda rows: None)
    assert {(f.tenant_id, f.day, f.segment) for f in found} <= {(TENANT, DAY, segment.segment_id)}
    assert all(f.detail for f in found)
    return [f.kind for f in found]


def rewritten(root, segment, table: pa.Table):
    """The segment with the file of `table` in its place, and only size and digest unknown."""
    table = table.replace_schema_metadata({VERSION_KEY: str(segment.schema_version)})
    pq.write_table(table, segment.path(root), **PARQUET_OPTIONS | {"store_schema": True})
    return replace(segment, size=segment.path(root).stat().st_size, sha256="")


def test_what_was_written_is_as_it_should_be(tmp_path, segment):
    read: list[pa.Table] = []

    assert check_segment(tmp_path, segment, SeqSet(), read.append) == []
    assert sum(rows.num_rows for rows in read) == len(ROWS)


def test_a_merged_segment_of_many_row_groups_is_as_it_should_be(tmp_path, monkeypatch):
    monkeypatch.setattr("analytics.storage.segment_writer.ROW_GROUP_ROWS", 4)
    parts = [sealed(tmp_path, f"seg_{n}", ROWS, first_seq=10 * n) for n in range(1, 4)]
    merged = merge_segments(tmp_path, parts, "seg_m")

    assert pq.ParquetFile(merged.path(tmp_path)).metadata.num_row_groups > 2
    assert kinds(tmp_path, merged) == []


def test_seq_in_a_file_counts_from_the_base_of_its_line(tmp_path):
    placed = sealed(tmp_path, "seg_1", ROWS, first_seq=0).with_seq_base(500)
    seen = SeqSet()

    assert kinds(tmp_path, placed, seen) == []
    assert kinds(tmp_path, sealed(tmp_path, "seg_2", ROWS), seen) == []
    assert kinds(tmp_path, sealed(tmp_path, "seg_3", ROWS, 509), seen) == [FaultKind.DUPLICATE_SEQ]


def test_a_missing_file_is_found(tmp_path, segment):
    segment.path(tmp_path).unlink()

    assert kinds(tmp_path, segment) == [FaultKind.MISSING_FILE]


def test_a_file_of_another_size_is_found(tmp_path, segment):
    """Its rows are not read: they could make other files look wrong."""
    with segment.path(tmp_path).open("ab") as file:
        file.write(b"more")

    assert kinds(tmp_path, segment) == [FaultKind.WRONG_SIZE]


def test_every_flipped_bit_is_found(tmp_path, segment):
    path = segment.path(tmp_path)
    content, chance = path.read_bytes(), random.Random(20261120)
    for place in chance.sample(range(len(content)), 40):
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)

        assert kinds(tmp_path, segment)[0] is FaultKind.WRONG_SHA256


def test_without_a_digest_in_the_catalog_the_rest_is_still_checked(tmp_path, segment):
    """Old catalog lines have none."""
    assert kinds(tmp_path, replace(segment, sha256="")) == []
    segment.path(tmp_path).write_bytes(b"PAR1" + b"\0" * (segment.size - 8) + b"PAR1")

    assert kinds(tmp_path, replace(segment, sha256="")) == [FaultKind.UNREADABLE]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 9},
        {"min_created_at": NOON - timedelta(microseconds=1)},
        {"max_created_at": NOON},
        {"min_seq": 2},
        {"max_seq": 11},
        {"event_counts": {"blocklist_hit": 9, "install_allowed": 1}},
        {"decision_counts": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_statistic_of_the_catalog_is_compared(tmp_path, segment, change):
    """The planner leaves files unopened because of these."""
    (finding,) = check_segment(tmp_path, replace(segment, **change), SeqSet(), lambda rows: None)

    assert finding.kind is FaultKind.WRONG_STATISTICS
    assert finding.detail.startswith(next(iter(change)))


def test_rows_that_are_not_newest_first_are_found(tmp_path, segment):
    """Pages and merges rely on the order."""
    oldest_first = newest_first(table_of(ROWS)).take(list(range(9, -1, -1)))

    assert kinds(tmp_path, rewritten(tmp_path, segment, oldest_first)) == [FaultKind.WRONG_ORDER]


def test_row_groups_out_of_order_are_found(tmp_path, segment):
    rows = newest_first(table_of(ROWS))
    with pq.ParquetWriter(segment.path(tmp_path), PARQUET_SCHEMA) as writer:
        writer.add_key_value_metadata({VERSION_KEY: str(segment.schema_version)})
        writer.write_table(rows.slice(5))
        writer.write_table(rows.slice(0, 5))
    known = replace(segment, size=segment.path(tmp_path).stat().st_size, sha256="")

    assert kinds(tmp_path, known) == [FaultKind.WRONG_ORDER]


def test_rows_of_one_instant_follow_each_other_by_seq(tmp_path):
    known = sealed(tmp_path, "seg_1", [sample_row()] * 3)
    rows = newest_first(table_of([sample_row()] * 3))

    assert kinds(tmp_path, known) == []
    assert kinds(tmp_path, rewritten(tmp_path, known, rows.take([1, 0, 2]))) == [
        FaultKind.WRONG_ORDER
    ]


def test_rows_of_another_day_are_found(tmp_path, segment):
    """A day's query would not find them, and pruning would remove them too early or too late."""
    strays = newest_first(table_of([*ROWS, sample_row(NOON + timedelta(days=1))]))

    assert kinds(tmp_path, rewritten(tmp_path, segment, strays)) == [FaultKind.WRONG_DAY]


@pytest.mark.parametrize(
    "table",
    [
        table_of(ROWS).drop_columns(["source_ip"]),
        table_of(ROWS).append_column("more", pa.array([None] * 10, pa.string())),
        table_of(ROWS).cast(pa.schema([field.with_nullable(True) for field in AUDIT_SCHEMA])),
    ],
    ids=["one less", "one more", "nulls allowed"],
)
def test_other_columns_than_an_audit_rows_are_found(tmp_path, segment, table):
    assert kinds(tmp_path, rewritten(tmp_path, segment, table)) == [FaultKind.WRONG_SCHEMA]


def test_a_segment_without_rows_is_found(tmp_path, segment):
    assert kinds(tmp_path, rewritten(tmp_path, segment, AUDIT_SCHEMA.empty_table())) == [
        FaultKind.WRONG_SCHEMA
    ]


def test_an_instant_beyond_the_calendar_is_a_finding_and_no_crash(tmp_path, segment):
    """Microseconds reach beyond the years of the calendar."""
    index = AUDIT_SCHEMA.get_field_index("created_at")
    far = pa.array([2**62] * 10, pa.timestamp("us", tz="UTC"))
    rows = table_of(ROWS).set_column(index, AUDIT_SCHEMA.field(index), far)

    assert kinds(tmp_path, rewritten(tmp_path, segment, newest_first(rows))) == [
        FaultKind.UNREADABLE
    ]


def test_an_id_that_is_no_id_is_a_finding_and_no_path(tmp_path, segment):
    """A changed catalog must not choose which file is read."""
    found = check_segment(
        tmp_path, replace(segment, segment_id="../seg_1"), SeqSet(), lambda rows: None
    )

    assert [finding.kind for finding in found] == [FaultKind.UNREADABLE]


def test_one_seq_in_two_places_is_found(tmp_path, segment):
    seen = SeqSet()
    assert kinds(tmp_path, segment, seen) == []
    assert kinds(tmp_path, sealed(tmp_path, "seg_2", ROWS, first_seq=11), seen) == []

    assert kinds(tmp_path, sealed(tmp_path, "seg_3", ROWS, 20), seen) == [FaultKind.DUPLICATE_SEQ]
    (finding,) = check_batches(TENANT, [batch_of(ROWS, 1)], seen)
    assert (finding.kind, finding.segment) == (FaultKind.DUPLICATE_SEQ, None)
    assert "from seq 1: seq 1 is in another" in finding.detail
    (finding,) = check_batches(TENANT, [batch_of(ROWS, 100), batch_of(ROWS, 105)], seen)
    assert "from seq 105: seq 105 is in another" in finding.detail


@pytest.mark.parametrize("bound", ["min_created_at", "max_created_at"])
def test_a_batch_whose_rows_are_outside_its_bounds_is_found(bound):
    """Queries skip it by them."""
    whole = batch_of(ROWS)
    further = whole.max_created_at if bound == "min_created_at" else whole.min_created_at

    (finding,) = check_batches(TENANT, [replace(whole, **{bound: further})], SeqSet())

    assert finding.kind is FaultKind.WRONG_STATISTICS
    assert format_us(further) in finding.detail


def test_a_set_of_seq_knows_exactly_which_it_has_seen():
    chance = random.Random(20261120)
    seen, model = SeqSet(), set()
    for _ in range(300):
        first = chance.randrange(30_000)
        run = list(range(first, first + chance.choice([1, 2, 50, 3_000])))
        kept = [seq for seq in run if chance.random() < 0.9] or run
        chance.shuffle(kept)

        met = seen.add(pa.chunked_array([pa.array(kept, pa.int64())]))

        assert set(met) <= model
        assert bool(met) == bool(model & set(kept))
        model |= set(kept)


def test_one_seq_twice_in_one_file_is_found():
    assert SeqSet().add(pa.chunked_array([pa.array([7, 9, 8, 8], pa.int64())])) == [8]


def damaged_batch(**changes) -> JournalBatch:
    return replace(batch_of(ROWS), **changes)


def batch_with_a_null() -> JournalBatch:
    """Arrow does not mind a null where the schema forbids it."""
    rows = table_of(ROWS).select(JOURNAL_SCHEMA.names)
    index = JOURNAL_SCHEMA.get_field_index("actor")
    rows = rows.set_column(index, JOURNAL_SCHEMA.field("actor"), pa.nulls(10, pa.string()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, JOURNAL_SCHEMA) as writer:
        writer.write_table(rows)
    return damaged_batch(data=bytes(sink.getvalue()))


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (damaged_batch(data=b"\0"), FaultKind.UNREADABLE),
        (damaged_batch(rows=9), FaultKind.UNREADABLE),
        (damaged_batch(day=DAY + timedelta(days=1)), FaultKind.WRONG_DAY),
        (batch_with_a_null(), FaultKind.MISSING_VALUE),
    ],
)
def test_what_is_wrong_with_a_journal_batch_is_found(batch, kind):
    (finding,) = check_batches(TENANT, [batch], SeqSet())

    assert (finding.kind, finding.tenant_id, finding.day) == (kind, TENANT, batch.day)
    assert check_batches(TENANT, [batch_of(ROWS)], SeqSet()) == []


FOLDER = f"tenant={TENANT}/day={DAY}"


@pytest.mark.parametrize(
    ("place", "kind", "is_swept"),
    [
        (f"{FOLDER}/seg_2.parquet", FaultKind.ORPHAN_FILE, True),
        (f"{FOLDER}/seg_2.pending", FaultKind.UNFINISHED_FILE, True),
        (f"{FOLDER}/seg_2.index", FaultKind.ORPHAN_FILE, True),
        (f"{FOLDER}/notes.txt", FaultKind.ORPHAN_FILE, True),
        (f"tenant={TENANT}/day={date(2026, 3, 5)}/seg_1.parquet", FaultKind.MISPLACED_FILE, False),
        (f"tenant=org_other/day={DAY}/seg_1.parquet", FaultKind.MISPLACED_FILE, False),
        ("seg_1.parquet", FaultKind.MISPLACED_FILE, False),
        (f"{FOLDER}/seg_1.pending", FaultKind.FOREIGN_FILE, False),
        (f"{FOLDER}/seg_1.txt", FaultKind.FOREIGN_FILE, False),
        (f"{FOLDER}/below/seg_2.parquet", FaultKind.FOREIGN_FILE, False),
        (f"tenant={TENANT}/seg_2.parquet", FaultKind.FOREIGN_FILE, False),
        ("seg_2.parquet", FaultKind.FOREIGN_FILE, False),
        ("notes.txt", FaultKind.FOREIGN_FILE, False),
    ],
)
def test_a_file_that_lies_where_none_should_is_found(tmp_path, segment, place, kind, is_swept):
    stray = tmp_path / place
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"")
    places = {segment.segment_id: (TENANT, DAY)}

    staying, swept = check_files(tmp_path, list_files(tmp_path), places)

    (finding,) = swept if is_swept else staying
    assert not (staying if is_swept else swept)
    assert (finding.kind, finding.detail) == (kind, place)
    assert finding.segment == stray.stem
    folders = {part.partition("=")[0]: part.partition("=")[2] for part in place.split("/")[:-1]}
    assert finding.tenant_id == folders.get("tenant")
    assert str(finding.day or "") == folders.get("day", "")


def test_a_file_that_went_while_the_catalog_was_read_is_no_finding(tmp_path, segment):
    files = list_files(tmp_path)
    segment.path(tmp_path).unlink()
    segment.index_path(tmp_path).unlink()

    assert check_files(tmp_path, files, {}) == ([], [])


def test_files_of_one_tenant_are_those_in_its_folder(tmp_path, segment):
    own = {segment.path(tmp_path), segment.index_path(tmp_path)}
    assert set(list_files(tmp_path, TENANT)) == set(list_files(tmp_path)) == own
    assert list_files(tmp_path, "org_other") == []


def test_an_index_that_says_something_else_than_the_rows_is_found(tmp_path):
    """An index that hides rows is worse than a missing one."""
    segment = sealed(tmp_path, "seg_1", ROWS)
    builder = IndexBuilder(1)
    builder.add(table_of([msgspec.structs.replace(row, package_name="other") for row in ROWS]))
    write_index(tmp_path, segment, builder)

    (finding,) = check_segment(tmp_path, segment, SeqSet(), lambda _: None)
    assert finding.kind is FaultKind.WRONG_INDEX
    assert "package_name" in finding.detail
    assert "reindex" in finding.remedy


@pytest.mark.parametrize("place", [2, 14, 60, -5])
def test_a_damaged_index_is_found(tmp_path, place):
    segment = sealed(tmp_path, "seg_1", ROWS)
    content = bytearray(segment.index_path(tmp_path).read_bytes())
    content[place] ^= 1
    segment.index_path(tmp_path).write_bytes(content)

    assert kinds(tmp_path, segment, SeqSet()) == [FaultKind.WRONG_INDEX]


@pytest.mark.parametrize("last", [8, 9, 10])
def test_an_index_of_an_earlier_version_is_no_finding(tmp_path, monkeypatch, last):
    """It lacks columns that came later, and is rebuilt."""
    segment = sealed(tmp_path, "seg_1", ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(index_builder, "INDEXED_COLUMNS", INDEXED_COLUMNS[:last])
        old = sealed_by_version_1(tmp_path, segment)

    assert kinds(tmp_path, old, SeqSet()) == []


def test_an_index_of_format_version_2_is_no_finding_unless_it_is_wrong(tmp_path):
    """It is read until it is built again."""
    segment = replace(sealed(tmp_path, "seg_1", ROWS), index_sha256="")
    write_version_2(tmp_path, segment)
    assert kinds(tmp_path, segment, SeqSet()) == []

    builder = IndexBuilder(1)
    builder.add(table_of([msgspec.structs.replace(row, package_name="other") for row in ROWS]))
    write_index(tmp_path, segment, builder)
    write_version_2(tmp_path, segment)
    assert kinds(tmp_path, segment, SeqSet()) == [FaultKind.WRONG_INDEX]


def test_an_index_that_lacks_a_column_of_the_rows_is_found(tmp_path, monkeypatch):
    """Rows of this version could not be found by it."""
    with monkeypatch.context() as patch:
        patch.setattr(index_builder, "INDEXED_COLUMNS", INDEXED_COLUMNS[:-1])
        segment = sealed(tmp_path, "seg_1", ROWS)

    assert kinds(tmp_path, segment, SeqSet()) == [FaultKind.WRONG_INDEX]


def test_a_missing_index_is_no_finding(tmp_path):
    """It is built in the background; earlier versions wrote none."""
    segment = sealed(tmp_path, "seg_1", ROWS)
    segment.index_path(tmp_path).unlink()

    assert kinds(tmp_path, segment, SeqSet()) == []
