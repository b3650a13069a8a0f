"""Tables in a bucket: on a real S3 server, where the tests of segments on S3 have one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from analytics.open_table.table_format import (
    FormatName,
    SnapshotChange,
    TableMissing,
    TableOvertaken,
)
from service.audit.open_table.places import TableKey, s3_places
from tests.analytics.samples import sample_row, sealed

servers = pytest.importorskip("tests.seaweedfs")
seaweedfs, bucket = servers.seaweedfs, servers.bucket

AT = datetime(2026, 3, 10, tzinfo=UTC)


@pytest.mark.slow
@pytest.mark.parametrize("name", FormatName)
def test_a_table_in_a_bucket_is_as_one_on_a_disk(bucket: Any, name: FormatName, tmp_path):
    import obstore
    from obstore.store import S3Store

    places = s3_places(bucket.url, bucket.server.endpoint, 10.0)
    _, _, name_and_prefix = bucket.url.partition("//")
    bucket_name, _, prefix = name_and_prefix.partition("/")
    store = S3Store(
        bucket_name,
        prefix=prefix,
        endpoint=bucket.server.endpoint,
        client_options={"allow_http": True},
    )
    segments = [
        sealed(tmp_path, f"seg_{n}", [sample_row()] * 3, first_seq=3 * n + 1) for n in range(3)
    ]
    for segment in segments:
        path = segment.path(tmp_path)
        obstore.put(store, path.relative_to(tmp_path).as_posix(), path.read_bytes())
    files = [(segment, places.uri(segment)) for segment in segments]
    table = places.table(TableKey(name))

    first = table.write(None, SnapshotChange(files[:2], frozenset(), 6, AT))
    changed = SnapshotChange(files[2:], frozenset({"seg_0"}), 9, AT + timedelta(hours=2))
    head = table.write(first, changed)
    if name is FormatName.DELTA:
        with pytest.raises(TableOvertaken):
            table.write(first, changed)
    expired = table.expire(head, AT + timedelta(hours=3), AT + timedelta(hours=5))

    assert expired is not None
    table.announce(expired)
    table.sweep(expired, datetime.now(UTC) + timedelta(days=1))
    assert table.read(expired.version) == expired
    assert table.named(expired, AT + timedelta(hours=3)) == {"seg_1", "seg_2"}
    if name is FormatName.ICEBERG:
        properties = dict(places.files.iceberg_properties)
        rows = StaticTable.from_metadata(expired.version, properties).scan().to_arrow()
    else:
        options = dict(places.files.delta_options)
        rows = DeltaTable(table.location, storage_options=options).to_pyarrow_table()
    assert sorted(rows["seq"].to_pylist()) == [4, 5, 6, 7, 8, 9]
    assert set(rows["tenant"].to_pylist()) == {"org_acme"}
    table.remove()
    with pytest.raises(TableMissing):
        table.read(expired.version)
