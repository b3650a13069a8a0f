"""What tests of open tables share: a service that publishes only when told to, and readers."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyiceberg.table import StaticTable

from analytics.open_table.table_format import FormatName
from service.audit.open_table.places import ALL_TENANTS, LakePlaces, TableKey
from service.audit.open_table.publisher import Published
from service.audit.open_table.registry import list_tables
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.service.audit.conftest import AuditWorld, audit

__all__ = ["audit"]

DAY = timedelta(days=1)
FORMATS = ["iceberg", "delta"]


@dataclass
class Answers:
    """What every engine must say of a table: the same as Countersign."""

    rows: int
    by_tenant: dict[str, int]
    weekly_hits: dict[str, int]
    min_seq: int | None
    max_seq: int | None


def answers_of(rows: pa.Table) -> Answers:
    """The answers from rows with `tenant`, `seq`, `event` and `created_at`."""
    by_tenant, weekly = Counter[str](), Counter[str]()
    seqs = rows["seq"].to_pylist()
    for row in rows.select(["tenant", "event", "created_at"]).to_pylist():
        by_tenant[row["tenant"]] += 1
        if row["event"] == "blocklist_hit":
            day = row["created_at"].date()
            weekly[str(day - timedelta(days=day.weekday()))] += 1
    return Answers(
        rows.num_rows,
        dict(by_tenant),
        dict(weekly),
        min(seqs, default=None),
        max(seqs, default=None),
    )


@dataclass
class LakeWorld:
    """An AuditWorld whose lake is published in one format."""

    audit: AuditWorld
    format: str

    @property
    def services(self) -> Any:
        return self.audit.services

    async def publish(self, **options: Any) -> Published:
        published = await self.services.publisher.publish([self.format], **options)
        return published[0]

    @property
    def places(self) -> LakePlaces:
        return self.services.publisher.places

    def key(self, tenant_id: str = ALL_TENANTS) -> TableKey:
        return TableKey(FormatName(self.format), tenant_id)

    async def version(self, tenant_id: str = ALL_TENANTS) -> str:
        """What the catalog names."""
        async with self.services.store.read() as session:
            return (await list_tables(session))[self.key(tenant_id)].version

    async def read(self, tenant_id: str = ALL_TENANTS) -> pa.Table:
        """The rows of the table, as its format's own library reads them."""
        if self.format == "iceberg":
            return (await self.iceberg(tenant_id)).scan().to_arrow()
        return self.delta(tenant_id).to_pyarrow_table()

    async def iceberg(self, tenant_id: str = ALL_TENANTS) -> StaticTable:
        properties = dict(self.places.files.iceberg_properties)
        return StaticTable.from_metadata(await self.version(tenant_id), properties)

    def delta(self, tenant_id: str = ALL_TENANTS, version: int | None = None) -> DeltaTable:
        location = self.places.location(self.key(tenant_id)).removeprefix("file://")
        options = dict(self.places.files.delta_options) or None
        return DeltaTable(location, version=version, storage_options=options)

    async def identity(self) -> str:
        """What a table that is started over has another one of."""
        if self.format == "iceberg":
            return str((await self.iceberg()).metadata.table_uuid)
        return str(self.delta().metadata().id)

    async def sealed(self) -> Answers:
        """What Countersign itself says of all that is sealed."""
        async with self.services.store.read() as session:
            from service.store.catalog import list_live_segments

            segments = await list_live_segments(session)
        return answers_of(await own_rows(self.services, segments))

    async def named_files(self) -> dict[str, set[str]]:
        """The URIs of the files of every snapshot that is not expired, by snapshot."""
        if self.format == "iceberg":
            table = await self.iceberg()
            return {
                str(snapshot.snapshot_id): set(
                    table.inspect.files(snapshot.snapshot_id)["file_path"].to_pylist()
                )
                for snapshot in table.snapshots()
            }
        names = self.places.files.names(f"{self.places.location(self.key())}/_delta_log")
        versions = sorted(int(name[:20]) for name in names if name.endswith(".json"))
        checkpoints = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")]
        named = {}
        for version in versions:
            try:
                files = self.delta(version=version).file_uris()
            except DeltaError:
                # Its log was being removed: an expired one, of which a checkpoint is the successor.
                assert version < max(checkpoints)
            else:
                root = "" if self.services.settings.segments_url else "file://"
                named[str(version)] = {f"{root}{uri}" for uri in files}
        return named

    async def assert_no_file_is_missing(self) -> None:
        """No snapshot that is not expired names a file that is not there."""
        root = self.services.lake.segments.root
        stored = {
            f"{self.places.audit}/{file.path.relative_to(root).as_posix()}"
            for file in await self.services.lake.list_files()
        }
        for snapshot, files in (await self.named_files()).items():
            assert files - stored == set(), f"snapshot {snapshot}"

    async def assert_published(self) -> None:
        """The table says what Countersign says, and names no missing file."""
        assert answers_of(await self.read()) == await self.sealed()
        await self.assert_no_file_is_missing()


async def own_rows(services: Any, segments: Any) -> pa.Table:
    """The rows of `segments` as Countersign reads them, with their tenant."""
    from analytics.storage.segment_reader import open_segment

    root = services.settings.audit_dir
    tables = []
    for segment in segments:
        async with services.lake.local(segment):
            with open_segment(root, segment) as file:
                rows = pa.concat_tables([file.rows(n) for n in range(file.row_group_count)])
        tenant = pa.array([segment.tenant_id] * rows.num_rows)
        tables.append(rows.select(["seq", "event", "created_at"]).append_column("tenant", tenant))
    empty = {"seq": [], "event": [], "created_at": [], "tenant": []}
    return pa.concat_tables(tables) if tables else pa.table(empty)


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(settings_over(tmp_path), orphan_grace_s=3600.0)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, audit: AuditWorld) -> LakeWorld:
    return LakeWorld(audit, request.param)


@pytest.fixture
async def filled(lake: LakeWorld) -> LakeWorld:
    """Three weeks of acme's and one of another organisation's, sealed and in the journal."""
    events = ["blocklist_hit", "install_allowed", "blocklist_hit"]
    for week in range(3):
        rows = [
            sample_row(START - week * 7 * DAY, event=event, package_name=f"p{n}")
            for n, event in enumerate(events)
        ]
        await lake.audit.accept(rows)
    await lake.audit.accept([sample_row(START)] * 4, lake.audit.world.other)
    await lake.audit.seal()
    return lake
