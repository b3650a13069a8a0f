"""Manifests: what they say of a file, and those of a week lie together by tenant."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.utils.datetime import date_to_days

from analytics.open_table.iceberg import IcebergTable
from analytics.open_table.iceberg_manifests import WEEK_SLACK
from analytics.open_table.metadata_files import LocalMetadataFiles, file_uri, local_path
from analytics.open_table.storage_faults import StorageFailed
from analytics.open_table.table_format import SnapshotChange
from analytics.storage.segment_metadata import Segment

MONDAY = date(2026, 3, 5)
"""The first day of a week that is counted since 1970."""

AT = datetime(2026, 4, 1, tzinfo=UTC)


def segment(number: int, tenant: int = 0, day: int = 0) -> Segment:
    """One of a tenant and a day, without a file."""
    at = datetime(2026, 3, 5, 12, 30, 1, 7, tzinfo=UTC) + timedelta(days=day)
    return Segment(
        segment_id=f"seg_{number}",
        tenant_id=f"org_{tenant:03}",
        day=MONDAY + timedelta(days=day),
        rows=1_000 + number,
        size=70_000 + number,
        min_created_at=at,
        max_created_at=at + timedelta(hours=3),
        min_seq=10**6 * number - 5,
        max_seq=10**6 * number + 5,
        event_counts={},
        decision_counts={},
    )


def uri(segment: Segment) -> str:
    return file_uri(segment.path(Path("/audit")))


@pytest.mark.parametrize("end", [-1, -20, -60])
def test_a_damaged_manifest_is_a_failure_of_the_storage(tmp_path, end):
    lake = Lake(tmp_path)
    lake.write([segment(1)])
    manifest = local_path(lake.manifests()[0].manifest_path)
    manifest.write_bytes(manifest.read_bytes()[:end])

    with pytest.raises(StorageFailed, match="the manifest is damaged"):
        lake.table.read(lake.head.version)


@pytest.mark.parametrize("end", [0, 3, -1, -20])
def test_a_damaged_list_of_manifests_is_a_failure_of_the_storage(tmp_path, end):
    lake = Lake(tmp_path)
    lake.write([segment(1)])
    found = StaticTable.from_metadata(lake.head.version)
    listed = local_path(found.current_snapshot().manifest_list)
    listed.write_bytes(listed.read_bytes()[:end])

    with pytest.raises(StorageFailed, match="the manifest list is damaged"):
        lake.table.read(lake.head.version)


def test_metadata_that_is_no_text_is_a_failure_of_the_storage(tmp_path):
    lake = Lake(tmp_path)
    lake.write([segment(1)])
    metadata = local_path(lake.head.version)
    metadata.write_bytes(b"\xff" + metadata.read_bytes()[1:])

    with pytest.raises(StorageFailed, match="is damaged"):
        lake.table.read(lake.head.version)


def test_an_entry_says_what_the_catalog_knows(tmp_path):
    """Readers choose files by partition and bounds, and count rows without opening them."""
    lake = Lake(tmp_path)
    one = segment(7, tenant=3, day=2)
    lake.write([one])

    found = StaticTable.from_metadata(lake.head.version)
    file = found.inspect.files().to_pylist()[0]
    bounds = file["readable_metrics"]

    assert (file["record_count"], file["file_size_in_bytes"]) == (one.rows, one.size)
    assert file["partition"] == {"tenant": "org_003", "created_at_day": one.day}
    assert (bounds["seq"]["lower_bound"], bounds["seq"]["upper_bound"]) == (
        one.min_seq,
        one.max_seq,
    )
    assert bounds["created_at"]["lower_bound"] == one.min_created_at
    assert bounds["created_at"]["upper_bound"] == one.max_created_at
    assert bounds["seq"]["value_count"], bounds["seq"]["null_value_count"] == (one.rows, 0)


class Lake:
    def __init__(self, root: Path) -> None:
        self.table = IcebergTable(file_uri(root / "table"), LocalMetadataFiles(root))
        self.head = None

    def write(self, segments: list[Segment], removed: frozenset[str] = frozenset()) -> None:
        files = [(one, uri(one)) for one in segments]
        self.head = self.table.write(self.head, SnapshotChange(files, removed, 7, AT))

    def manifests(self):
        found = StaticTable.from_metadata(self.head.version)
        return found.current_snapshot().manifests(found.io)

    def plan(self, tenant: int, days: int) -> tuple[int, int]:
        """Files that a reader opens for some days of a tenant, and manifests that it reads."""
        found = StaticTable.from_metadata(self.head.version)
        until = MONDAY + timedelta(days=days)
        scan = found.scan(
            row_filter=f"tenant = 'org_{tenant:03}' and created_at >= '{MONDAY}T00:00:00+00:00'"
            f" and created_at < '{until}T00:00:00+00:00'"
        )
        key = f"org_{tenant:03}".encode()
        last = date_to_days(until) - 1
        opened = [
            manifest
            for manifest in self.manifests()
            if manifest.partitions[0].lower_bound <= key <= manifest.partitions[0].upper_bound
            and int.from_bytes(manifest.partitions[1].lower_bound, "little") <= last
        ]
        return len(list(scan.plan_files())), len(opened)


def test_the_week_of_a_tenant_is_in_few_manifests(tmp_path):
    lake = Lake(tmp_path)
    lake.write([segment(28 * t + d, tenant=t, day=d) for t in range(100) for d in range(28)])

    assert len(lake.manifests()) == 8
    assert lake.plan(tenant=40, days=7) == (7, 1)


def test_small_changes_do_not_pile_up_manifests(tmp_path):
    lake = Lake(tmp_path)
    lake.write([segment(number, tenant=number) for number in range(300)])
    for number in range(300, 314):
        gone = frozenset({f"seg_{number - 100}"})
        lake.write([segment(number, tenant=number)], gone)

        live = [
            one for one in lake.manifests() if one.has_added_files() or one.has_existing_files()
        ]
        assert len(live) <= 2 + WEEK_SLACK

    assert len(lake.head.files) == 300
    assert lake.table.read(lake.head.version) == lake.head
    found = StaticTable.from_metadata(lake.head.version)
    assert set(found.inspect.files()["file_path"].to_pylist()) == set(lake.head.files.values())
    summary = found.current_snapshot().summary
    assert summary["total-data-files"] == "300"
    numbers = [
        entry.sequence_number
        for manifest in lake.manifests()
        for entry in manifest.fetch_manifest_entry(found.io)
    ]
    assert (min(numbers), max(numbers)) == (1, 15)
