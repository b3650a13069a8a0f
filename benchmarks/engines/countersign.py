"""Countersign itself: its files, its reader, and its server with default settings."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import msgspec

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.imports.segment_buffer import WRITTEN_TOGETHER
from analytics.model.cursors import Position
from analytics.query.aggregates import TOP_MAX
from analytics.query.buckets import Bucket
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import NewSegment, write_segments
from analytics.storage.snapshot import Snapshot
from benchmarks.client import Client
from benchmarks.engines import COLUMNS, Ask, Send, Served, Source, folder_bytes, rows_of
from benchmarks.lake import tenant_id
from benchmarks.served import SLUG, found, served
from benchmarks.server import ADMIN_TOKEN
from benchmarks.workload import PAGE_ROWS, Export, Histogram, Page, Question, Top
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.audit.lake import Lake
from service.audit.pruner import drop_days
from service.core.clock import utc_now
from service.core.settings import Settings
from service.core.version import service_version

HEADERS = {"x-service-admin-token": ADMIN_TOKEN}
QUIET = {"COUNTERSIGN_LOG_LEVEL": "error"}  # issuers are unreachable here, which does not matter
API = f"/api/v1/admin/orgs/{SLUG}/audit"


class ThisEngine:
    """Pages and counts with the service's reader in this process; ingest and web over HTTP."""

    needs_bytes_a_row = 40
    loads = None
    setup = (
        "as shipped: a Parquet file of each tenant and day, 256 MB of decoded rows, DuckDB within"
        " 2 GB. Ingest is over HTTP and checks every row; exports guard CSV and make a SHA-256"
    )

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder, self._source = folder, source
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def version(self) -> str:
        return f"Countersign {service_version()} (DuckDB {version('duckdb')})"

    def load(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        (self._folder / "audit").mkdir(parents=True)
        new = (
            NewSegment(each.tenant_id, each.day, each.segment_id, self._source.table(each))
            for each in self._source.segments
        )
        written: list[Segment] = []
        while together := list(islice(new, WRITTEN_TOGETHER)):  # as an import does
            written += write_segments(self._folder / "audit", together)
        (self._folder / "catalog.json").write_bytes(msgspec.json.encode(written))

    def open(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(dir=self._folder)
        catalog = (self._folder / "catalog.json").read_bytes()
        self._segments = msgspec.json.decode(catalog, type=list[Segment])
        self._data_dir = Path(self._scratch.name)
        asyncio.run(found(self._segments, self._folder / "audit", self._data_dir))
        self._lake = Lake(Settings(data_dir=self._data_dir))
        asyncio.run(self._lake.queries.warm_up())  # as its server does
        own = tuple(s for s in self._segments if s.tenant_id == tenant_id(0))
        self._snapshot = Snapshot(tenant_id(0), self._source.last_seq, own, ())

    def ready(self, question: Question, after: Position | None) -> Ask:
        reader, snapshot = self._lake.queries._reader, self._snapshot
        match question:
            case Page(query=query):
                return lambda: rows_of(reader.page(snapshot, query, PAGE_ROWS, after))
            case Histogram():
                everything = Page("", "").query
                return lambda: sorted(
                    (start.date(), decision, count)
                    for (start, decision), count in reader.count_over_time(
                        snapshot, everything, Bucket.DAY
                    ).items()
                )
            case Top(column=column):
                everything = Page("", "").query
                return lambda: reader.count_values(snapshot, everything, column, TOP_MAX)

    def flush(self) -> None:
        """Do nothing: indexes are written with their segments."""

    def export(self, export: Export) -> int:
        tables = self._lake.queries._reader.stream(self._snapshot, Page("", "").query)
        rows = 0
        for piece in export_pieces(tables, tenant_id(0), FileEncoding(ExportFormat(export.format))):
            rows = piece.rows
        return rows

    @contextmanager
    def ingesting(self, rows: int) -> Iterator[Callable[[], "_Sender"]]:
        body = msgspec.json.encode([_item(row) for row in self._source.sample(rows)])
        with served(self._segments, self._folder, QUIET) as client:
            port = client.base_url.port
            assert port is not None
            yield lambda: _Sender(port, body, rows)

    def forget_ingested(self) -> None:
        """Do nothing: the rows were in the data dir of a server that is gone."""

    def prune(self, day: date) -> None:
        asyncio.run(self._prune(day))

    async def _prune(self, day: date) -> None:
        services = build_services(await prepare(Settings(data_dir=self._data_dir)), utc_now)
        async with services.store.write() as work:
            await drop_days(work.session, tenant_id(0), day, work.now)
        own = [s for s in self._snapshot.segments if s.day == day]
        await services.lake.remove_segments(own)  # as the sweeper does when they are no longer read
        await services.close()

    def restore(self, days: Sequence[date]) -> None:
        """Do nothing: the days were links in the data dir of this run."""

    @contextmanager
    def serving(self) -> Iterator[Served]:
        with served(self._segments, self._folder, QUIET) as client:
            port = client.base_url.port
            assert port is not None
            yield Served(port, API, HEADERS)

    def bytes_on_disk(self) -> int:
        database = self._data_dir.glob("countersign.db*")
        return folder_bytes(self._folder / "audit") + sum(p.stat().st_size for p in database)

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._lake.close()
        if self._scratch is not None:
            self._scratch.cleanup()


class _Sender:
    """A persistent connection that sends the same body repeatedly."""

    def __init__(self, port: int, body: bytes, rows: int) -> None:
        self._client, self._body, self._rows = Client(port, HEADERS), body, rows

    def __enter__(self) -> Send:
        self._client.__enter__()
        return self._send

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def _send(self) -> None:
        answer = self._client.ask("POST", f"{API}/events", self._body, "application/json")
        taken = msgspec.json.decode(answer.body)
        assert answer.status == 200, answer.body
        assert taken == {"accepted": self._rows, "rejected": []}, taken


def _item(row: tuple[object, ...]) -> dict[str, object]:
    """A stored row as a proxy would send it."""
    told = dict(zip(COLUMNS, row, strict=True))
    item = {
        "event": told["event"],
        "packageName": told["package_name"],
        "version": told["version"],
        "ecosystem": told["ecosystem"],
        "decision": told["decision"],
    }
    if told["decision_reason"] is not None:
        item["envelope"] = msgspec.Raw(str(told["decision_reason"]).encode())
    return item
