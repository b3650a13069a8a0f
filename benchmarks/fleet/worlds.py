"""Nodes of Countersign for a benchmark, on SQLite or PostgreSQL, with a folder or S3."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analytics.model.retention import Tier
from analytics.storage.segment_metadata import Segment
from benchmarks.postgres_server import PostgresServer
from benchmarks.served import SLUG
from benchmarks.server import ServerClient, running_server
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.catalog import add_segments
from service.store.journal import take_seq
from service.store.tables import Organisation
from tests.seaweedfs import BUCKET, SeaweedFS


@dataclass
class World:
    """Where a deployment keeps its database and its segments; nodes are started over it."""

    folder: Path
    database_url: str = ""
    objects: SeaweedFS | None = None
    secret_key: str = field(default_factory=lambda: secrets.token_hex(24))
    _prefix: str = field(default_factory=lambda: secrets.token_hex(4))

    def settings(self, node: int = 0) -> Settings:
        """Those of a node, for work in this process."""
        settings = Settings(
            data_dir=self.folder / f"node-{node}",
            database_url=self.database_url,
            secret_key=self.secret_key,
        )
        if self.objects is None:
            return settings
        return msgspec.structs.replace(
            settings, segments_url=self._url, segments_endpoint=self.objects.endpoint
        )

    @property
    def _url(self) -> str:
        return f"s3://{BUCKET}/{self._prefix}"

    def fill(self, segments: Sequence[Segment] = (), root: Path | None = None) -> None:
        """Create the organisations that have `segments`, or SLUG alone, with files below `root`."""
        with _with_environment(self.objects.environment if self.objects else {}):
            asyncio.run(_fill(self.settings(), segments, root))

    @contextmanager
    def nodes(
        self, count: int = 1, environment: Mapping[str, str] | None = None
    ) -> Iterator[list[ServerClient]]:
        """`count` nodes, ready; they end with the block and keep their data dirs."""
        shared = {
            "COUNTERSIGN_DATABASE_URL": self.database_url,
            "COUNTERSIGN_SECRET_KEY": self.secret_key,
            **(environment or {}),
        }
        if self.objects is not None:
            shared |= {
                **self.objects.environment,
                "COUNTERSIGN_SEGMENTS_URL": self._url,
                "COUNTERSIGN_SEGMENTS_ENDPOINT": self.objects.endpoint,
            }
        with ExitStack() as stack:
            yield [
                stack.enter_context(running_server(self.settings(number).data_dir, shared))
                for number in range(count)
            ]


@contextmanager
def sqlite_world(objects: SeaweedFS | None = None) -> Iterator[World]:
    """One machine: SQLite, and a folder or the store `objects`."""
    with tempfile.TemporaryDirectory(prefix="countersign-fleet-") as folder:
        yield World(Path(folder), objects=objects)


@contextmanager
def postgres_world(
    environment: Mapping[str, str] | None = None, objects: SeaweedFS | None = None
) -> Iterator[World]:
    """Nodes on a PostgreSQL of their own, whose processes have `environment` beside ours.

    Without the store `objects`, segments are in the folder of the first node, which alone reads
    them.
    """
    with tempfile.TemporaryDirectory(prefix="countersign-fleet-") as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "postgres", environment)
        server.start()
        try:
            url = f"postgresql+asyncpg://bench@/postgres?host={server.socket}"
            yield World(Path(folder), url, objects)
        finally:
            server.stop()


@contextmanager
def _with_environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _fill(settings: Settings, segments: Sequence[Segment], root: Path | None) -> None:
    settings = await prepare(settings)
    services = build_services(settings, utc_now)
    try:
        if root is not None:
            for segment in segments:
                services.lake.segments.put(_linking(segment, root))
        ids = list(dict.fromkeys(segment.tenant_id for segment in segments)) or ["org_bench00"]
        async with services.store.write() as work:
            for tenant_id in ids:
                slug = SLUG if tenant_id == ids[0] else tenant_id.replace("_", "-")
                work.session.add(
                    Organisation(
                        id=tenant_id,
                        slug=slug,
                        tier=Tier.ENTERPRISE,
                        role_overrides={},
                        created_at=work.now,
                    )
                )
            await work.session.flush()
            if segments:
                await take_seq(work.session, max(segment.max_seq for segment in segments), work.now)
                await add_segments(work.session, segments, work.now)
    finally:
        await services.close()


def _linking(segment: Segment, root: Path):  # noqa: ANN202 - a Write, see SegmentStore.put
    def write(folder: Path) -> Segment:
        for path in (segment.path(folder), segment.index_path(folder)):
            path.parent.mkdir(parents=True, exist_ok=True)
            source = root / path.relative_to(folder)
            if source.exists():
                os.link(source, path)
        return segment

    return write
