"""Segments: durable files of one tenant and day, newest row first; restored ones, too."""

import errno
import itertools
import os
import random
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.model.errors import StoreFault
from analytics.model.schema import AUDIT_SCHEMA, COLUMNS, SCHEMA_VERSION
from analytics.storage.audit_files import FileRole, role_of
from analytics.storage.fsync import SYNCS_AT_ONCE
from analytics.storage.segment_metadata import VERSION_KEY, SchemaMismatch, Segment, WrongDay
from analytics.storage.segment_reader import check_present
from analytics.storage.segment_writer import (
    ROW_GROUP_BYTES,
    NewSegment,
    in_row_groups,
    newest_first,
    place_segment,
    write_segment,
    write_segments,
)
from tests.analytics.samples import DAY, NOON, TENANT, sample_row, sealed, table_of

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
LAST_INSTANT = datetime(2026, 3, 4, 23, 59, 59, 999_999, tzinfo=UTC)


def test_the_file_is_synced_whole_before_it_gets_its_name(tmp_path, file_steps):
    """A name that survives power loss must never stand for bytes that did not."""
    path = sealed(tmp_path, "seg_1", [sample_row()]).path(tmp_path)

    pending = path.with_name(f".{path.name}.pending")
    assert file_steps.index("fsync", pending) < file_steps.index("rename", path)
    assert file_steps.synced_bytes[pending] == path.stat().st_size


def test_the_names_are_synced_after_the_renames(tmp_path, file_steps):
    """Otherwise the catalog could name a file that power loss removed."""
    segment = sealed(tmp_path, "seg_1", [sample_row()])
    path, index = segment.path(tmp_path), segment.index_path(tmp_path)

    synced = file_steps.index("fsync", path.parent)
    assert file_steps.index("rename", index) < file_steps.index("rename", path) < synced


def _two_days() -> list[NewSegment]:
    days = {DAY: NOON, DAY - timedelta(days=1): NOON - timedelta(days=1)}
    rows = {day: table_of([sample_row(at)]) for day, at in days.items()}
    names = [(DAY, "seg_1"), (min(days), "seg_2"), (min(days), "seg_3")]
    return [NewSegment(TENANT, day, name, rows[day]) for day, name in names]


def test_several_segments_are_synced_before_the_first_has_its_name(tmp_path, file_steps):
    segments = write_segments(tmp_path, _two_days())

    kinds = [what for what, _ in file_steps.steps if what != "mkdir"]
    files, folders = 2 * len(segments), {"today", "yesterday", "tenant", "root"}
    assert kinds == ["fsync"] * files + ["rename"] * files + ["fsync"] * len(folders)
    for segment in segments:
        for path, size in (
            (segment.path(tmp_path), segment.size),
            (segment.index_path(tmp_path), segment.index_size),
        ):
            assert file_steps.synced_bytes[path.with_name(f".{path.name}.pending")] == size
    check_present(tmp_path, segments)


def test_an_index_is_for_the_service_alone(tmp_path):
    """It contains values of rows; the segment itself may be for other programs, too."""
    segment = write_segment(tmp_path, TENANT, DAY, "seg_1", table_of([sample_row(NOON)]))

    assert stat.S_IMODE(segment.index_path(tmp_path).stat().st_mode) == 0o600


def test_files_are_synced_side_by_side(tmp_path, monkeypatch):
    """A disk syncs several files in the time of one."""
    fsync, waiting = os.fsync, threading.Barrier(SYNCS_AT_ONCE)

    def wait_for_others(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            waiting.wait(timeout=60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", wait_for_others)

    segments = write_segments(tmp_path, _two_days()[: SYNCS_AT_ONCE // 2])

    check_present(tmp_path, segments)


@pytest.mark.parametrize("number", range(1, 7))
def test_if_one_file_cannot_be_synced_none_has_a_name(tmp_path, monkeypatch, number):
    """What the disk did not confirm must not look whole."""
    fsync, numbers = os.fsync, itertools.count(1)

    def fail_once(descriptor: int) -> None:
        if next(numbers) == number:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)

    with pytest.raises(OSError, match="Input/output error"):
        write_segments(tmp_path, _two_days())

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_if_one_table_is_refused_none_is_written(tmp_path, file_steps):
    """Callers count on all of their rows or none."""
    one, *_ = _two_days()
    stray = replace(one, segment_id="seg_2", day=DAY - timedelta(days=3))

    with pytest.raises(WrongDay):
        write_segments(tmp_path, [one, stray])

    assert file_steps.steps == []


def test_rows_come_back_whole_and_newest_first_whatever_their_order(tmp_path):
    shuffled = random.Random(7)
    instants = [NOON + timedelta(microseconds=shuffled.randrange(5)) for _ in range(100)]
    rows = table_of([sample_row(at, package_name=f"p{n}") for n, at in enumerate(instants)])

    segment = write_segment(tmp_path, TENANT, DAY, "seg_1", rows)
    stored = pq.read_table(segment.path(tmp_path), partitioning=None)

    assert stored.schema.equals(AUDIT_SCHEMA)
    expected = sorted(rows.to_pylist(), key=lambda row: (row["created_at"], row["seq"]))
    assert stored.to_pylist() == expected[::-1]
    assert newest_first(rows).to_pylist() == expected[::-1]


def test_the_catalog_learns_enough_to_skip_the_file_unopened(tmp_path):
    """Null is counted under the empty string."""
    rows = [
        sample_row(NOON, event="blocklist_hit", decision="BLOCKED"),
        sample_row(MIDNIGHT, event="org_created", decision=None),
        sample_row(LAST_INSTANT, event="blocklist_hit", decision="BLOCKED"),
        sample_row(NOON, event="install_allowed", decision="ALLOWED"),
        sample_row(NOON, event="org_created", decision=None),
    ]

    segment = sealed(tmp_path, "seg_1", rows, first_seq=41)

    assert (segment.segment_id, segment.tenant_id, segment.day) == ("seg_1", TENANT, DAY)
    assert segment.rows == 5
    assert segment.size == segment.path(tmp_path).stat().st_size
    assert (segment.min_created_at, segment.max_created_at) == (MIDNIGHT, LAST_INSTANT)
    assert (segment.min_seq, segment.max_seq) == (41, 45)
    assert segment.event_counts == {"blocklist_hit": 2, "org_created": 2, "install_allowed": 1}
    assert segment.decision_counts == {"BLOCKED": 2, "ALLOWED": 1, "": 2}


def test_a_day_runs_from_its_midnight_to_the_last_microsecond(tmp_path):
    assert sealed(tmp_path, "seg_1", [sample_row(MIDNIGHT), sample_row(LAST_INSTANT)]).rows == 2


@pytest.mark.parametrize(
    "stray", [MIDNIGHT - timedelta(microseconds=1), LAST_INSTANT + timedelta(microseconds=1)]
)
def test_a_row_of_another_day_is_refused_before_any_byte(tmp_path, file_steps, stray):
    """Queries skip files by day: none would find such a row."""
    rows = table_of([sample_row(NOON), sample_row(stray)])

    with pytest.raises(WrongDay):
        write_segment(tmp_path, TENANT, DAY, "seg_1", rows)

    assert file_steps.steps == []
    assert list(tmp_path.iterdir()) == []


def _cast(rows: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    place = AUDIT_SCHEMA.get_field_index(column)
    field = AUDIT_SCHEMA.field(column).with_type(kind)
    return rows.set_column(place, field, rows.column(column).cast(kind))


def _with_null(rows: pa.Table, column: str) -> pa.Table:
    place = AUDIT_SCHEMA.get_field_index(column)
    field = AUDIT_SCHEMA.field(column)
    return rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows.drop_columns("subject"),
        lambda rows: rows.append_column("tenant_id", rows.column("actor")),
        lambda rows: rows.select(AUDIT_SCHEMA.names[::-1]),
        lambda rows: rows.rename_columns({"actor": "who"}),
        lambda rows: _cast(rows, "event", pa.large_string()),
        lambda rows: _cast(rows, "created_at", pa.timestamp("ns", tz="UTC")),
        lambda rows: _cast(rows, "created_at", pa.timestamp("us", tz="Europe/Oslo")),
        lambda rows: _with_null(rows, "actor"),
        lambda rows: _with_null(rows, "seq"),
        lambda rows: rows.slice(0, 0),
    ],
)
def test_rows_that_are_no_audit_rows_are_refused_before_any_byte(tmp_path, file_steps, spoil):
    with pytest.raises(SchemaMismatch):
        write_segment(tmp_path, TENANT, DAY, "seg_1", spoil(table_of([sample_row()])))

    assert file_steps.steps == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "row_groups", "pages_are_indexed", "filters"),
    [
        (1_000, 1, False, set()),
        (3_000, 1, True, set()),
        (40_000, 2, True, {"package_name", "actor", "subject", "oidc_binding_id", "file_sha256"}),
    ],
)
def test_the_file_can_be_searched_without_being_read(
    tmp_path, count, row_groups, pages_are_indexed, filters
):
    hundred = [sample_row(package_name=f"p{n}", actor=f"key_{n}") for n in range(100)]
    rows = table_of(hundred * (count // 100))
    path = write_segment(tmp_path, TENANT, DAY, "seg_1", rows).path(tmp_path)
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}

    assert metadata.num_row_groups == row_groups
    assert group.num_rows == min(count, 32_768)
    assert {name for name, column in columns.items() if _bloom_offset(column)} == filters
    for column in columns.values():
        assert column.has_offset_index == pages_are_indexed
        assert column.compression == "ZSTD"
    counted = {name for name, column in columns.items() if column.is_stats_set}
    assert counted == {"seq", "created_at", "event", "decision"}
    assert columns["created_at"].statistics.min == NOON
    assert "RLE_DICTIONARY" in columns["event"].encodings


def test_a_file_says_its_version_owner_and_fields_without_arrows_schema(tmp_path):
    """Arrow's own copy of the schema would be a tenth of a small file."""
    file = pq.ParquetFile(sealed(tmp_path, "seg_1", [sample_row()]).path(tmp_path))

    assert file.metadata.metadata == {
        VERSION_KEY: str(SCHEMA_VERSION).encode(),
        b"countersign.tenant_id": TENANT.encode(),
        b"countersign.day": DAY.isoformat().encode(),
        b"countersign.segment_id": b"seg_1",
    }
    assert file.schema_arrow.equals(AUDIT_SCHEMA)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in file.schema_arrow]
    assert ids == [column.field_id for column in COLUMNS]


def _bloom_offset(column: pq.ColumnChunkMetaData) -> int | None:
    return column.to_dict().get("bloom_filter_offset")


def test_a_segment_that_cannot_be_written_leaves_no_half_file(tmp_path, monkeypatch):
    """On a full disk it would take room that changes and revokes need."""

    def fill_disk(writer, rows, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fill_disk)

    with pytest.raises(OSError, match="No space left"):
        write_segment(tmp_path, TENANT, DAY, "seg_1", table_of([sample_row()]))

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_long_rows_make_smaller_row_groups(tmp_path):
    """A reader decodes row groups as a whole."""
    rows = [
        sample_row(NOON - timedelta(seconds=n), payload=f'{{"registry":"{"a" * 1_000_000}"}}')
        for n in range(90)
    ]
    segment = sealed(tmp_path, "seg_1", rows)

    file = pq.ParquetFile(segment.path(tmp_path))
    groups = [file.read_row_group(n) for n in range(file.metadata.num_row_groups)]
    assert max(group.nbytes for group in groups) <= ROW_GROUP_BYTES
    assert len(groups) == 3
    assert pa.concat_tables(groups)["seq"].to_pylist() == list(range(1, 91))


def test_long_rows_are_written_before_many_of_them_are_held():
    """A merge passes few rows at a time."""
    long = table_of([sample_row(payload="a" * 1_000_000)] * 10)
    taken = []

    def tables():
        for _ in range(9):
            taken.append(long.num_rows)
            yield long

    groups = in_row_groups(tables())

    assert next(groups).nbytes <= ROW_GROUP_BYTES
    assert sum(taken) <= 40
    assert sum(group.num_rows for group in groups) == 90 - 30


@pytest.fixture
def copied(tmp_path) -> Segment:
    """A segment that is stored elsewhere, as in a backup."""
    (tmp_path / "backup").mkdir()
    return sealed(tmp_path / "backup", "seg_a", [sample_row()])


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "audit"
    folder.mkdir()
    return folder


def test_a_restored_file_is_durable_before_and_after_it_has_its_name(
    tmp_path, root, copied, file_steps
):
    place_segment(root, copied, copied.path(tmp_path / "backup"))

    target = copied.path(root)
    (pending,) = {
        path for what, path in file_steps.steps if what == "fsync" and path.suffix == ".pending"
    }
    assert file_steps.synced_bytes[pending] == copied.size
    renamed = file_steps.index("rename", target)
    assert file_steps.index("fsync", pending) < renamed
    assert ("fsync", target.parent) in file_steps.steps[renamed:]
    for folder in file_steps.made():
        assert ("fsync", folder.parent) in file_steps.steps
    assert target.read_bytes() == copied.path(tmp_path / "backup").read_bytes()


def test_a_damaged_file_is_replaced_at_once(tmp_path, root, copied):
    copied.path(root).parent.mkdir(parents=True)
    copied.path(root).write_bytes(b"damaged")

    place_segment(root, copied, copied.path(tmp_path / "backup"))

    assert [path.name for path in copied.path(root).parent.iterdir()] == ["seg_a.parquet"]


def test_a_copy_that_changed_meanwhile_is_not_put_in_place(tmp_path, root, copied):
    source = copied.path(tmp_path / "backup")
    source.write_bytes(source.read_bytes()[:-1] + b"?")
    copied.path(root).parent.mkdir(parents=True)
    copied.path(root).write_bytes(b"as it was")

    with pytest.raises(StoreFault, match="SHA-256"):
        place_segment(root, copied, source)

    assert copied.path(root).read_bytes() == b"as it was"
    assert len(list(copied.path(root).parent.iterdir())) == 1


def test_a_disk_that_takes_no_name_keeps_no_copy(tmp_path, root, copied, monkeypatch):
    """It would take room that others need."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="no space"):
            place_segment(root, copied, copied.path(tmp_path / "backup"))

    assert list(copied.path(root).parent.iterdir()) == []


def test_what_a_crash_leaves_is_swept(root, copied):
    left = copied.path(root).with_name("restored-0123456789abcdef.pending")

    role = role_of(root, left, {"seg_a": (TENANT, copied.day)})

    assert role is FileRole.UNFINISHED
