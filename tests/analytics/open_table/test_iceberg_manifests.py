"""Manifests are what pyiceberg would write, and those of a week lie together by tenant."""

import zlib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, TimestamptzType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from analytics.open_table.avro import AvroReader, DamagedAvro, encoded_long, read_container
from analytics.open_table.iceberg import IcebergTable
from analytics.open_table.iceberg_entries import encode_manifest, live_entries, new_entry
from analytics.open_table.iceberg_manifests import WEEK_SLACK
from analytics.open_table.iceberg_schema import ICEBERG_SCHEMA, PARTITIONS
from analytics.open_table.metadata_files import LocalMetadataFiles, file_uri
from analytics.open_table.storage_faults import StorageFailed
from analytics.open_table.table_format import Change
from analytics.storage.segment_metadata import Segment

MONDAY = date(2026, 3, 5)
"""The first day of a week that is counted since 1970."""

AT = datetime(2026, 4, 1, tzinfo=UTC)
SNAPSHOT = 8_123_456_789_012_345_678


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


def by_pyiceberg(segment: Segment) -> DataFile:
    """The same file in pyiceberg's own terms."""

    def bounds(seq: int, at: datetime) -> dict[int, bytes]:
        return {
            1: to_bytes(LongType(), seq),
            2: to_bytes(TimestamptzType(), datetime_to_micros(at)),
        }

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri(segment),
        file_format=FileFormat.PARQUET,
        partition=Record(segment.tenant_id, date_to_days(segment.day)),
        record_count=segment.rows,
        file_size_in_bytes=segment.size,
        value_counts={1: segment.rows, 2: segment.rows},
        null_value_counts={1: 0, 2: 0},
        lower_bounds=bounds(segment.min_seq, segment.min_created_at),
        upper_bounds=bounds(segment.max_seq, segment.max_created_at),
    )


def written_by_pyiceberg(path: Path, segments: list[Segment], codec: str = "gzip"):
    """A manifest, and what a list of manifests says of it."""
    output = PyArrowFileIO().new_output(file_uri(path))
    with write_manifest(2, PARTITIONS, ICEBERG_SCHEMA, output, SNAPSHOT, codec) as writer:
        for one in segments:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, data_file=by_pyiceberg(one)
            )
            writer.add(entry)
    manifest = writer.to_manifest_file()
    manifest.sequence_number = 3
    return manifest


def values_of(content: bytes) -> tuple[dict[str, bytes], bytes]:
    """The metadata of a manifest, and all its values encoded."""
    metadata, blocks = read_container(content)
    return metadata, b"".join(reader.take(len(reader._content)) for _, reader in blocks)


def test_a_manifest_is_the_one_that_pyiceberg_writes(tmp_path):
    """Byte for byte, but for the size of its blocks."""
    segments = [segment(number, tenant=number % 7, day=number % 3) for number in range(40)]
    written_by_pyiceberg(tmp_path / "theirs.avro", segments)
    theirs = values_of((tmp_path / "theirs.avro").read_bytes())

    entries = [new_entry(one, uri(one), SNAPSHOT) for one in segments]
    ours = values_of(encode_manifest(entries, ICEBERG_SCHEMA))

    assert ours == theirs


@pytest.mark.parametrize("codec", ["gzip", "null"])
def test_what_pyiceberg_wrote_is_read(tmp_path, codec):
    """Also a manifest of another codec, whose entries then are encoded again."""
    segments = [segment(number) for number in range(3)]
    manifest = written_by_pyiceberg(tmp_path / "theirs.avro", segments, codec)

    content = (tmp_path / "theirs.avro").read_bytes()
    entries = live_entries(manifest, content, PyArrowFileIO())

    assert entries == [
        new_entry(one, uri(one), SNAPSHOT)._replace(sequence_number=3, file_sequence_number=3)
        for one in segments
    ]


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_integers_of_any_size_are_kept(value):
    """As Avro has them: the sign in the lowest bit, seven bits a byte."""
    assert AvroReader(encoded_long(value)).long() == value


def test_a_manifest_that_ends_too_early_is_damaged():
    """It is never a shorter list of files."""
    content = encode_manifest([new_entry(segment(1), uri(segment(1)), 1)], ICEBERG_SCHEMA)

    with pytest.raises((DamagedAvro, zlib.error)):
        values_of(content[:-20])


@pytest.mark.parametrize("end", [-1, -20, -60])
def test_a_damaged_manifest_of_ours_is_a_failure_of_the_storage(tmp_path, end):
    """Publishing ends without a change, and says which file it is."""
    manifest = written_by_pyiceberg(tmp_path / "theirs.avro", [segment(1)])
    content = encode_manifest([new_entry(segment(1), uri(segment(1)), 1)], ICEBERG_SCHEMA)

    with pytest.raises(StorageFailed, match="the manifest is damaged"):
        live_entries(manifest, content[:end], PyArrowFileIO())


class Lake:
    """A table of made-up files."""

    def __init__(self, root: Path) -> None:
        self.table = IcebergTable(file_uri(root / "table"), LocalMetadataFiles(root))
        self.head = None

    def write(self, segments: list[Segment], removed: frozenset[str] = frozenset()) -> None:
        files = [(one, uri(one)) for one in segments]
        self.head = self.table.write(self.head, Change(files, removed, 7, AT))

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
    """However many tenants there are."""
    lake = Lake(tmp_path)
    lake.write([segment(28 * t + d, tenant=t, day=d) for t in range(100) for d in range(28)])

    assert len(lake.manifests()) == 8
    assert lake.plan(tenant=40, days=7) == (7, 1)


def test_small_changes_do_not_pile_up_manifests(tmp_path):
    """Each adds one; before there are many, they are merged, and what is removed stays removed."""
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
