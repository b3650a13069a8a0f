"""Both formats keep the promises of the seam, also where their libraries do not."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from analytics.model.schema import AUDIT_SCHEMA, COLUMNS
from analytics.open_table import delta, iceberg
from analytics.open_table.delta import DeltaLakeTable
from analytics.open_table.iceberg import IcebergTable
from analytics.open_table.iceberg_schema import ICEBERG_SCHEMA, TENANT_ID
from analytics.open_table.metadata_files import LocalMetadataFiles, file_uri
from analytics.open_table.table_format import (
    SnapshotChange,
    TableFormat,
    TableHead,
    TableMissing,
    TableOvertaken,
    difference,
)
from analytics.storage.segment_metadata import Segment
from tests.analytics.samples import DAY, NOON, sample_row, sealed, sealed_by_version_1
from tests.budgets import only_full

AT = datetime(2026, 3, 10, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "audit").mkdir()
    return tmp_path


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, root: Path) -> TableFormat:
    files = LocalMetadataFiles(root)
    if request.param == "iceberg":
        return IcebergTable(file_uri(root / "lake" / "audit"), files)
    return DeltaLakeTable(file_uri(root / "audit"), files)


def uri(root: Path, segment: Segment) -> str:
    return file_uri(segment.path(root / "audit"))


def change(root: Path, *added: Segment, removed: tuple[str, ...] = ()) -> SnapshotChange:
    files = [(segment, uri(root, segment)) for segment in added]
    return SnapshotChange(files, frozenset(removed), complete_through_seq=7, at=AT)


def made_up(number: int) -> Segment:
    """A segment of a tenant and a day of its own, without a file."""
    return Segment(
        segment_id=f"seg_{number}",
        tenant_id=f"org_{number}",
        day=date(2020, 1, 1) + timedelta(days=number),
        rows=1,
        size=1,
        min_created_at=NOON,
        max_created_at=NOON,
        min_seq=number,
        max_seq=number,
        event_counts={},
        decision_counts={},
    )


def test_a_table_that_was_written_is_read_the_same(table, root):
    segment = sealed(root / "audit", "seg_1", [sample_row()])

    head = table.write(None, change(root, segment))

    assert table.read(head.version) == head
    assert head.files == {"seg_1": uri(root, segment)}
    assert head.complete_through_seq == 7


def test_there_is_no_table_before_it_is_written(table):
    assert table.read(None) is None


def test_a_table_whose_metadata_is_gone_is_missing(table, root):
    head = table.write(None, change(root, made_up(1)))
    table.remove()

    with pytest.raises(TableMissing):
        table.read(head.version)


def test_a_new_snapshot_of_an_old_head_replaces_nothing(table, root):
    """Delta refuses it; with Iceberg the catalog does, which named another version since."""
    first = table.write(None, change(root, made_up(1)))
    assert table.is_current(first)
    second = table.write(first, change(root, made_up(2)))

    assert table.is_current(second)
    if isinstance(table, DeltaLakeTable):
        with pytest.raises(TableOvertaken):
            table.write(first, change(root, made_up(2)))
        assert not table.is_current(first)
        assert table.read(first.version) == second
    else:
        third = table.write(first, change(root, made_up(3)))
        assert set(third.files) == {"seg_1", "seg_3"}
        assert table.read(second.version) == second


@only_full
def test_many_partitions_change_at_once(table, root):
    """A year of a hundred tenants is pruned: nothing recurses over the days."""
    segments = [made_up(number) for number in range(3_000)]
    head = table.write(None, change(root, *segments))
    gone = tuple(segment.segment_id for segment in segments[:2_500])

    after = table.write(head, change(root, made_up(5_000), removed=gone))

    assert len(after.files) == 501
    assert table.read(after.version) == after
    assert table.named(after, AT) == {segment.segment_id for segment in segments} | {"seg_5000"}


def test_a_change_of_one_day_rewrites_few_manifests(root):
    """A manifest is read and written as a whole."""
    table = IcebergTable(file_uri(root / "lake" / "audit"), LocalMetadataFiles(root))
    head = table.write(None, change(root, *(made_up(number) for number in range(2_000))))

    after = table.write(head, change(root, made_up(3_000), removed=("seg_700",)))

    found = StaticTable.from_metadata(after.version)
    snapshot = found.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(found.io)
    rewritten = [one for one in manifests if one.added_snapshot_id == snapshot.snapshot_id]
    assert (len(manifests), len(rewritten)) == (7, 3)
    assert len(after.files) == 2_000
    assert table.read(after.version) == after


def test_snapshots_expire_when_they_were_superseded_long_ago(table, root):
    head = table.write(None, change(root, made_up(1)))
    head = table.write(head, replace(change(root, made_up(2)), at=AT + timedelta(hours=2)))
    head = table.write(head, replace(change(root, removed=("seg_1",)), at=AT + timedelta(hours=4)))

    now = AT + timedelta(hours=9)
    expired = table.expire(head, AT + timedelta(hours=3), now)
    assert expired is not None
    assert table.named(expired, AT + timedelta(hours=3)) == {"seg_1", "seg_2"}
    again = table.expire(expired, AT + timedelta(hours=5), now)

    assert again is not None
    assert table.named(again, AT + timedelta(hours=5)) == {"seg_2"}
    assert table.expire(again, AT + timedelta(hours=8), now) is None
    assert table.read(again.version) == again


def test_files_without_field_ids_are_read_by_name(root):
    """Iceberg's readers use name mappings; the publisher rewrites such files."""
    table = IcebergTable(file_uri(root / "lake" / "audit"), LocalMetadataFiles(root))
    old = sealed_by_version_1(root / "audit", sealed(root / "audit", "seg_1", [sample_row()]))
    assert not old.is_portable

    head = table.write(None, change(root, old))

    (row,) = StaticTable.from_metadata(head.version).scan().to_arrow().to_pylist()
    assert (row["package_name"], row["ecosystem"], row["tenant"]) == ("left-pad", None, "org_acme")


def test_field_ids_are_those_in_the_files():
    columns = {field.name: field.field_id for field in ICEBERG_SCHEMA.fields}

    assert columns.pop("tenant") == TENANT_ID > 1_000
    assert columns == {column.name: column.field_id for column in COLUMNS}


def test_an_iceberg_table_gets_columns_that_came_later(root, monkeypatch):
    files = LocalMetadataFiles(root)
    fields = [field for field in ICEBERG_SCHEMA.fields if field.name != "token_id"]
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "ICEBERG_SCHEMA", Schema(*fields, schema_id=1))
        table = IcebergTable(file_uri(root / "lake" / "audit"), files)
        head = table.write(None, change(root, sealed(root / "audit", "seg_1", [sample_row()])))

    segment = sealed(root / "audit", "seg_2", [sample_row()], first_seq=2)
    after = table.write(head, change(root, segment))

    found = StaticTable.from_metadata(after.version)
    assert found.schema().find_field("token_id").field_id == 21
    assert found.scan().to_arrow()["token_id"].null_count == 0


def test_a_delta_table_gets_columns_that_came_later(root, monkeypatch):
    location = root / "audit"
    table = DeltaLakeTable(file_uri(location), LocalMetadataFiles(root))
    with monkeypatch.context() as patch:
        names = [name for name in delta.ARROW_SCHEMA.names if name != "token_id"]
        patch.setattr(
            delta, "ARROW_SCHEMA", pa.schema([delta.ARROW_SCHEMA.field(n) for n in names])
        )
        head = table.write(None, change(root, sealed(location, "seg_1", [sample_row()])))

    segment = sealed(location, "seg_2", [sample_row()], first_seq=2)
    after = table.write(head, change(root, segment))

    rows = DeltaTable(str(location)).to_pyarrow_table()
    assert set(after.files) == {"seg_1", "seg_2"}
    assert rows["token_id"].null_count == 0
    assert rows["day"].to_pylist() == [DAY, DAY]
    assert set(rows.schema.names) == {*AUDIT_SCHEMA.names, "tenant", "day"}


def test_the_difference_is_of_what_is_there_and_what_is_wanted():
    """Ids of segments are never used twice."""
    head = TableHead("1", "1", {"seg_1": "file:///1", "seg_2": "file:///2"}, 0, 1)

    assert difference(None, ["seg_1", "seg_2"]) == (["seg_1", "seg_2"], frozenset())
    assert difference(head, ["seg_2", "seg_3"]) == (["seg_3"], frozenset({"seg_1"}))
