"""ClickHouse as the library chdb: a MergeTree in the page's order, with skipping indexes."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import chdb
import msgspec
import pyarrow as pa

from analytics.model.cursors import Position
from analytics.storage.segment_metadata import Segment
from benchmarks.engines import COLUMNS, Ask, Row, Send, Source, rows_of
from benchmarks.engines.sql import NEWEST_FIRST, Dialect, statement
from benchmarks.lake import TENANTS, tenant_id
from benchmarks.workload import Export, Page, Question

FEW = "LowCardinality(String)"
FEW_OR_NULL = "LowCardinality(Nullable(String))"
TABLE = f"""
CREATE TABLE rows (
  tenant UInt8,
  seq Int64 CODEC(Delta, ZSTD(1)),
  created_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
  received_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
  event {FEW}, package_name {FEW_OR_NULL}, version {FEW_OR_NULL},
  decision {FEW_OR_NULL}, decision_reason Nullable(String) CODEC(ZSTD(1)),
  verdict_source {FEW}, actor_tenant_id {FEW_OR_NULL},
  actor {FEW}, actor_source {FEW}, subject {FEW_OR_NULL},
  oidc_binding_id {FEW_OR_NULL}, request_id Nullable(String) CODEC(ZSTD(1)),
  source_ip {FEW_OR_NULL}, payload Nullable(String) CODEC(ZSTD(1)),
  ecosystem {FEW_OR_NULL}, repository_id {FEW_OR_NULL}, run_id Nullable(String) CODEC(ZSTD(1)),
  token_id Nullable(String) CODEC(ZSTD(1)),
  file_name {FEW_OR_NULL}, file_sha256 {FEW_OR_NULL}, client {FEW_OR_NULL},
  INDEX by_package package_name TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX by_actor actor TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX by_decision decision TYPE set(8) GRANULARITY 1,
  INDEX by_event event TYPE set(32) GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toYYYYMM(created_at) ORDER BY (tenant, created_at, seq)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
"""
INSTANT = "formatDateTime({0}, '%Y-%m-%dT%H:%i:%S.%fZ') AS {0}"
ROWS_AN_INSERT = 1_000_000
FILES_AN_INSERT = 500
"""How many names fit in a statement."""
TENANT = tenant_id(0).removesuffix("00") + r"(\\d\\d)"


class _Dialect(Dialect):
    day = "toInt32(toDate(created_at))"
    columns = ", ".join(COLUMNS)

    def bind(self, name: str, value: object) -> str:
        return f"{{{name}:{'Int64' if isinstance(value, int) else 'String'}}}"

    def begins(self, column: str, name: str, text: str, bound: dict[str, Any]) -> str:
        bound[name] = text
        return f"startsWith({column}, {self.bind(name, text)})"

    def behind(self, after: Position, bound: dict[str, Any]) -> str:
        bound["at"], bound["seq"] = after.created_at.strftime("%Y-%m-%d %H:%M:%S.%f"), after.seq
        at = "toDateTime64({at:String}, 6, 'UTC')"
        # The first half repeats what the second implies, in a form that the primary index can use.
        return f"created_at <= {at} AND (created_at, seq) < ({at}, {{seq:Int64}})"

    def order(self, page: Page) -> str:
        return NEWEST_FIRST


class ThisEngine:
    """The engine in this process; answers are Arrow tables."""

    needs_bytes_a_row = 120
    loads = 2
    setup = (
        "MergeTree ordered by (tenant, created_at, seq), partitions of a month, LowCardinality for"
        " what repeats, Delta and ZSTD codecs; Bloom filters on package and actor, sets on decision"
        " and event; inserted in blocks of a million, OPTIMIZE FINAL; parts synced on insert."
        " Its JSON has the payload as a string"
    )

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder, self._source = folder, source
        self._asking = Lock()

    def version(self) -> str:
        (found,) = self._rows("SELECT version()")
        return f"ClickHouse {found[0]} (chdb-core {version('chdb-core')})"

    def load(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._connection = chdb.connect(str(self._folder))
        self._query(TABLE)
        batch: list[Segment] = []
        for segment in self._source.segments:
            batch.append(segment)
            if (
                len(batch) == FILES_AN_INSERT
                or sum(segment.rows for segment in batch) >= ROWS_AN_INSERT
            ):
                self._insert(batch)
                batch = []
        self._insert(batch)
        self._query("OPTIMIZE TABLE rows FINAL")
        self._connection.close()

    def _insert(self, segments: Sequence[Segment]) -> None:
        if not segments:
            return
        root = self._source.folder / "audit"
        files = ",".join(str(segment.path(root).relative_to(root)) for segment in segments)
        names = ", ".join(COLUMNS)
        self._query(
            f"INSERT INTO rows (tenant, {names})"
            f" SELECT toUInt8(extract(_path, '{TENANT}')), {names}"
            f" FROM file('{root}/{{{files}}}', Parquet)"
        )

    def open(self) -> None:
        self._connection = chdb.connect(str(self._folder))
        self._query(f"SET max_threads = {os.cpu_count()}")

    def ready(self, question: Question, after: Position | None) -> Ask:
        said = statement(_Dialect(), question, after)
        if isinstance(question, Page):
            return lambda: rows_of(self._table(said.sql, said.bound))
        return lambda: self._rows(said.sql, said.bound)

    def flush(self) -> None:
        """Do nothing."""

    def export(self, export: Export) -> int:
        columns = ", ".join(
            INSTANT.format(name) if name.endswith("_at") else name for name in COLUMNS
        )
        text = "CSVWithNames" if export.format == "csv" else "JSONEachRow"
        size = 0
        stream = self._connection.send_query(f"SELECT {columns} FROM rows WHERE tenant = 0", text)
        for piece in stream:
            size += piece.size()
        assert size > 0
        (counted,) = self._rows("SELECT count() FROM rows WHERE tenant = 0")
        return int(counted[0])

    @contextmanager
    def ingesting(self, rows: int) -> Iterator[Callable[[], "_Sender"]]:
        seq = itertools.count(self._source.last_seq + 1)
        sample = self._source.sample(rows)
        yield lambda: _Sender(self._insert_text, sample, seq)

    def _insert_text(self, text: str) -> None:
        self._query(f"INSERT INTO rows FORMAT JSONCompactEachRow {text}")

    def forget_ingested(self) -> None:
        self._query(f"ALTER TABLE rows DELETE WHERE tenant = {TENANTS} SETTINGS mutations_sync = 1")
        self._query("OPTIMIZE TABLE rows FINAL")

    def prune(self, day: date) -> None:
        self._query(
            "DELETE FROM rows WHERE tenant = 0"
            f" AND created_at >= toDateTime64('{day} 00:00:00', 6, 'UTC')"
            f" AND created_at < toDateTime64('{day + timedelta(days=1)} 00:00:00', 6, 'UTC')"
            " SETTINGS lightweight_deletes_sync = 1"
        )

    def restore(self, days: Sequence[date]) -> None:
        self._insert([segment for segment in self._source.largest if segment.day in days])
        self._query("OPTIMIZE TABLE rows FINAL")

    def serving(self) -> None:
        return None

    def bytes_on_disk(self) -> int:
        (found,) = self._rows(
            "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'rows'"
        )
        return int(found[0])

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._connection.close()

    def _query(self, sql: str, bound: dict[str, Any] | None = None, form: str = "Null") -> Any:  # noqa: ANN401
        with self._asking:  # a connection is for one thread at a time
            return self._connection.query(sql, form, params=bound or {})

    def _table(self, sql: str, bound: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        answer = self._query(sql, bound, "Arrow").bytes()
        return pa.ipc.open_file(pa.py_buffer(answer)).read_all()

    def _rows(self, sql: str, bound: dict[str, Any] | None = None) -> list[Row]:
        answer = self._query(sql, bound, "JSONCompactEachRow").bytes()
        return [tuple(msgspec.json.decode(line)) for line in answer.splitlines()]


class _Sender:
    """Inserts rows as of now, one part per request, as nothing batches them."""

    def __init__(
        self, insert: Callable[[str], None], sample: list[Row], seq: "itertools.count[int]"
    ) -> None:
        self._insert, self._sample, self._seq = insert, sample, seq

    def __enter__(self) -> Send:
        return self._send

    def __exit__(self, *_: object) -> None:
        """Do nothing: the connection is shared."""

    def _send(self) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.gmtime())
        rows = ((TENANTS, next(self._seq), now, now, *row[3:]) for row in self._sample)
        self._insert("\n".join(msgspec.json.encode(row).decode() for row in rows))
