"""Rows of every schema version are read as rows of this one; those of a later one are refused."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.model.errors import StoreFault
from analytics.model.filters import Query, parse_query
from analytics.model.schema import (
    AUDIT_SCHEMA,
    COLUMNS,
    JOURNAL_SCHEMA,
    SCHEMA_VERSION,
    NewerSchema,
)
from analytics.query import sql
from analytics.storage.compaction import merge_segments
from analytics.storage.integrity import FaultKind, SeqSet, check_batches, check_segment
from analytics.storage.journal_batches import CorruptBatch, decode_batch
from analytics.storage.segment_metadata import VERSION_KEY, Segment
from analytics.storage.segment_reader import ENCODED_SCHEMA, OtherSchema, open_segment
from analytics.storage.segment_writer import TEXT_DICTIONARIES
from tests.analytics.forced import forced
from tests.analytics.samples import (
    NOON,
    TENANT,
    SampleLake,
    as_of_version_1,
    batch_of,
    journalled_by_version_1,
    sample_row,
    sealed,
    sealed_by_version_1,
    table_of,
)

NEWER = "was written by a newer version of Countersign: update this one"
ROWS = [sample_row(NOON - timedelta(seconds=second)) for second in range(3)]
OLD = table_of(as_of_version_1(ROWS))
"""What version 1 kept of ROWS, newest first as they are."""


@pytest.fixture
def old(tmp_path: Path) -> Segment:
    """ROWS as version 1 sealed them."""
    return sealed_by_version_1(tmp_path, sealed(tmp_path, "seg_1", ROWS))


def by_a_later_version(root: Path, segment: Segment) -> Segment:
    """`segment` with a column more, which this version does not know."""
    table = pq.read_table(segment.path(root), partitioning=None)
    table = table.append_column("more", pa.nulls(table.num_rows, pa.string()))
    version = SCHEMA_VERSION + 1
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: str(version)}), segment.path(root))
    size = segment.path(root).stat().st_size
    return replace(segment, schema_version=version, size=size, sha256="")


def test_a_file_names_its_version_and_numbers_its_columns(tmp_path):
    """Other engines find a column by its number, whatever it is called in a later version."""
    segment = sealed(tmp_path, "seg_1", ROWS)
    stored = pq.read_metadata(segment.path(tmp_path))
    (_, *fields) = duckdb.sql(
        f"SELECT name, field_id FROM parquet_schema('{segment.path(tmp_path)}')"
    ).fetchall()

    assert segment.schema_version == SCHEMA_VERSION
    assert stored.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert fields == [(column.name, column.field_id) for column in COLUMNS]


def test_rows_read_from_a_file_have_no_metadata(tmp_path):
    """Tables of files and of the journal are joined: one schema is enough."""
    segment = sealed(tmp_path, "seg_1", ROWS)

    with open_segment(tmp_path, segment) as file:
        rows = file.rows(0)

    assert rows.schema.equals(AUDIT_SCHEMA, check_metadata=True)


def test_an_old_file_has_null_where_it_has_no_column(tmp_path, old):
    with open_segment(tmp_path, old, TEXT_DICTIONARIES) as file:
        assert file.rows(0).schema.equals(AUDIT_SCHEMA, check_metadata=True)
        assert file.rows(0).to_pylist() == OLD.to_pylist()
        assert file.encoded_rows(0).schema.equals(ENCODED_SCHEMA)
        assert file.encoded_rows(0).cast(AUDIT_SCHEMA).to_pylist() == OLD.to_pylist()
        looked_at = file.some_columns(0, {"ecosystem", "actor"})
        assert looked_at.to_pylist() == OLD.select(["seq", "actor", "ecosystem"]).to_pylist()


def test_an_old_file_that_lacks_a_column_of_its_own_version_is_a_fault(tmp_path, old):
    """Null stands for a column that came later; anything else that is missing was lost."""
    table = pq.read_table(old.path(tmp_path), partitioning=None)
    pq.write_table(table.drop_columns(["subject"]), old.path(tmp_path))

    with open_segment(tmp_path, old) as file, pytest.raises(StoreFault):
        file.rows(0)


def test_a_file_of_another_version_than_the_catalog_says_is_a_fault(tmp_path, old):
    """Otherwise existing values would be read as null."""
    new = sealed(tmp_path, "seg_2", ROWS, 4)

    for segment in (replace(new, schema_version=1), replace(old, schema_version=SCHEMA_VERSION)):
        with pytest.raises(OtherSchema, match="the catalog says"), open_segment(tmp_path, segment):
            pytest.fail("it was opened")
        (finding,) = check_segment(tmp_path, segment, SeqSet(), lambda rows: None)
        assert finding.kind is FaultKind.WRONG_SCHEMA


def test_an_old_batch_has_null_where_it_has_no_column():
    decoded = decode_batch(journalled_by_version_1(batch_of(ROWS)))

    assert decoded.schema.equals(AUDIT_SCHEMA)
    assert decoded.to_pylist() == OLD.to_pylist()


def test_old_and_new_files_merge_into_a_new_one(tmp_path, old):
    new = sealed(tmp_path, "seg_2", ROWS, 4)

    merged = merge_segments(tmp_path, [old, new], "seg_3")

    assert merged.schema_version == SCHEMA_VERSION
    with open_segment(tmp_path, merged) as file:
        rows = {row["seq"]: row for row in file.rows(0).to_pylist()}
    expected = OLD.to_pylist() + table_of(ROWS, 4).to_pylist()
    assert rows == {row["seq"]: row for row in expected}


def test_old_files_and_batches_pass_the_check(tmp_path, old):
    seen = SeqSet()

    assert check_segment(tmp_path, old, seen, lambda rows: None) == []
    assert check_batches(TENANT, [journalled_by_version_1(batch_of(ROWS, 4))], seen) == []


def test_more_files_than_scans_are_read_whatever_their_versions(lake: SampleLake, monkeypatch):
    """The files of rare bases share a scan, but not with files of other columns."""
    monkeypatch.setattr(sql, "SCANS_MAX", 2)
    accepted = {}
    for number in range(24):
        at = NOON - timedelta(minutes=number)
        accepted |= lake.add([sample_row(at, run_id=str(number))] * 2, is_sealed=True)
    assert len({(one.seq_base, one.schema_version) for one in lake.segments}) > 4
    bare = forced(lake.reader, "duckdb")

    rows = bare.page(lake.snapshot(), Query(), 100).to_pylist()
    without = bare.page(lake.snapshot(), parse_query({"run_id": ["!3", "!4"]}), 100).to_pylist()

    assert {row.pop("seq"): row for row in rows} == {
        seq: msgspec.structs.asdict(row) for seq, row in accepted.items()
    }
    assert {row["seq"] for row in without} == {
        seq for seq, row in accepted.items() if row.run_id not in {"3", "4"}
    }


def test_a_file_of_a_later_version_is_refused_with_a_remedy(lake: SampleLake):
    """That version may keep what was asked for in a column that this one does not know."""
    segment = by_a_later_version(lake.root, sealed(lake.root, "seg_1", ROWS))
    lake.segments, lake.last_seq = [segment], len(ROWS)

    with pytest.raises(NewerSchema, match=NEWER), open_segment(lake.root, segment):
        pytest.fail("it was opened")
    for reader in (lake.reader, forced(lake.reader, "duckdb")):
        with pytest.raises(NewerSchema, match=NEWER):
            reader.page(lake.snapshot(), Query(), 1)
    with pytest.raises(NewerSchema, match=NEWER):
        merge_segments(lake.root, [segment], "seg_2")
    (finding,) = check_segment(lake.root, segment, SeqSet(), lambda rows: None)
    assert (finding.kind, NEWER in finding.detail) == (FaultKind.WRONG_SCHEMA, True)


def batch_with(schema: pa.Schema) -> bytes:
    """ROWS as IPC bytes with the columns of `schema`, null in those they lack."""
    held = table_of(ROWS)
    arrays = [
        held[field.name] if field.name in held.schema.names else pa.nulls(len(ROWS), field.type)
        for field in schema
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def test_a_batch_of_a_later_version_is_refused_with_a_remedy():
    later = batch_with(JOURNAL_SCHEMA.append(pa.field("more", pa.string())))

    batch = replace(batch_of(ROWS), data=later)

    with pytest.raises(NewerSchema, match=NEWER):
        decode_batch(batch)
    (finding,) = check_batches(TENANT, [batch], SeqSet())
    assert (finding.kind, NEWER in finding.detail) == (FaultKind.WRONG_SCHEMA, True)


@pytest.mark.parametrize(
    "schema",
    [
        JOURNAL_SCHEMA.remove(len(JOURNAL_SCHEMA) - 1),
        JOURNAL_SCHEMA.remove(0),
        JOURNAL_SCHEMA.insert(0, pa.field("more", pa.string())),
        JOURNAL_SCHEMA.set(3, pa.field("more", pa.string())),
        JOURNAL_SCHEMA.remove(15).append(pa.field("more", pa.string())),
    ],
    ids=["last gone", "first gone", "one before", "renamed", "replaced"],
)
def test_a_batch_of_no_version_is_damaged(schema):
    with pytest.raises(CorruptBatch):
        decode_batch(replace(batch_of(ROWS), data=batch_with(schema)))
