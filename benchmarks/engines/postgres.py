"""PostgreSQL 15: one table, and a B-tree in the page's order for every filter."""

import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
from psycopg.types.string import TextBinaryLoader

from analytics.model.cursors import Position
from analytics.model.ecosystems import Ecosystem
from analytics.storage.segment_metadata import Segment
from benchmarks.engines import BUT_PAYLOAD, COLUMNS, Ask, Row, Send, Served, Source
from benchmarks.engines.sql import Dialect, statement
from benchmarks.lake import TENANTS
from benchmarks.peer_app import serving_peer
from benchmarks.postgres_server import PostgresServer
from benchmarks.workload import Export, Question

TABLE = """
CREATE TABLE rows (
  seq bigint NOT NULL DEFAULT nextval('rows_seq'), created_at timestamptz NOT NULL,
  received_at timestamptz NOT NULL, tenant smallint NOT NULL, event event NOT NULL,
  decision decision, verdict_source verdict_source NOT NULL, actor_source actor_source NOT NULL,
  package_name text, version text, decision_reason text, actor_tenant_id text,
  actor text NOT NULL, subject text, oidc_binding_id text, request_id text, source_ip inet,
  payload text, ecosystem ecosystem, repository_id text, run_id text, token_id text,
  file_name text, file_sha256 text, client text
)
"""
INDEXES = ("", "event, ", "decision, ", "package_name, ", "actor, ")
EXPORTS = {
    "csv": "COPY (SELECT {columns} FROM rows WHERE tenant = 0) TO '/dev/null' (FORMAT csv, HEADER)",
    # As CSV with a quote character that never occurs: the text format would double every backslash.
    "ndjson": "COPY (SELECT row_to_json(one) FROM (SELECT {most}, payload::json AS payload"
    " FROM rows WHERE tenant = 0) AS one) TO '/dev/null'"
    " (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')",
}


class _Dialect(Dialect):
    columns = ", ".join("host(source_ip)" if name == "source_ip" else name for name in COLUMNS)

    def bind(self, name: str, value: object) -> str:
        return f"%({name})s"


class ThisEngine:
    """A separate server; prepared statements over its socket, with binary results."""

    needs_bytes_a_row = 650
    loads = 2
    setup = (
        "Debian's 15 with a quarter of the memory as shared buffers, work_mem 256 MB, two parallel"
        " workers; low-cardinality columns as enums, addresses as inet, tenants as smallint;"
        " B-trees on (tenant, created_at, seq) and with event, decision, package, actor before the"
        " instant; filled by COPY before the indexes, then VACUUM ANALYZE; prepared statements,"
        " binary results; synchronous_commit on"
    )

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder, self._source = folder, source
        self._server = PostgresServer(folder)

    def version(self) -> str:
        with self._connection() as connection:
            (found,) = connection.execute("SHOW server_version").fetchone() or ("",)
        return f"PostgreSQL {str(found).split()[0]} (psycopg {psycopg.__version__})"

    def load(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._server.start()
        try:
            self._fill()
        finally:
            self._server.stop()

    def _fill(self) -> None:
        with self._connection(autocommit=False) as connection:
            create_table(connection, self._enums())
            for segment in self._source.segments:
                self._copy(connection, segment)
            connection.execute(f"SELECT setval('rows_seq', {self._source.last_seq})")
            connection.commit()
            create_indexes(connection)
            connection.commit()
        with self._connection() as connection:
            connection.execute("VACUUM (ANALYZE, FREEZE) rows")
            connection.execute("CHECKPOINT")

    def _enums(self) -> dict[str, set[str]]:
        segments, newest = self._source.segments, self._source.table(self._source.largest[-1])
        return {
            "event": {value for segment in segments for value in segment.event_counts},
            "decision": {
                value for segment in segments for value in segment.decision_counts if value
            },
            "verdict_source": set(newest["verdict_source"].unique().to_pylist()),
            "actor_source": set(newest["actor_source"].unique().to_pylist()),
            "ecosystem": set(Ecosystem),
        }

    def _copy(self, connection: psycopg.Connection[Any], segment: Segment) -> None:
        made = io.BytesIO()
        table = self._source.table(segment)
        rank = int(segment.tenant_id[-2:])
        table = table.append_column("tenant", pa.repeat(pa.scalar(rank, pa.int16()), len(table)))
        pacsv.write_csv(table, made, pacsv.WriteOptions(include_header=False))
        sql = f"COPY rows ({', '.join(table.column_names)}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(sql) as copy:
            copy.write(made.getbuffer())

    def open(self) -> None:
        self._server.start()
        self._asking = self._connection()
        self._take_enums_as_text()
        self._asking.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        self._asking.execute(
            "SELECT pg_prewarm(oid) FROM pg_class"
            " WHERE relname LIKE 'rows%' AND relkind IN ('r', 'i')"
        )

    def ready(self, question: Question, after: Position | None) -> Ask:
        said = statement(_Dialect(), question, after)
        cursor = self._asking.cursor(binary=True)
        return lambda: cursor.execute(said.sql, said.bound, prepare=True).fetchall()

    def flush(self) -> None:
        """Do nothing."""

    def export(self, export: Export) -> int:
        sql = EXPORTS[export.format].format(columns=", ".join(COLUMNS), most=", ".join(BUT_PAYLOAD))
        return self._asking.execute(sql).rowcount

    @contextmanager
    def ingesting(self, rows: int) -> Iterator[Callable[[], "_Sender"]]:
        sample = self._source.sample(rows)
        yield lambda: _Sender(self._connection(), sample)

    def forget_ingested(self) -> None:
        self._asking.execute(f"DELETE FROM rows WHERE tenant = {TENANTS}")
        self._asking.execute("VACUUM ANALYZE rows")

    def prune(self, day: date) -> None:
        self._asking.execute(
            "DELETE FROM rows WHERE tenant = 0 AND created_at >= %s AND created_at < %s",
            (day, day + timedelta(days=1)),
        )

    def restore(self, days: Sequence[date]) -> None:
        self._asking.execute("VACUUM rows")
        with self._connection(autocommit=False) as connection:
            for segment in self._source.largest:
                if segment.day in days:
                    self._copy(connection, segment)
        self._asking.execute("VACUUM ANALYZE rows")

    @contextmanager
    def serving(self) -> Iterator[Served]:
        with serving_peer(self._server.socket) as served:
            yield served

    def bytes_on_disk(self) -> int:
        found = self._asking.execute("SELECT pg_total_relation_size('rows')").fetchone()
        assert found is not None
        return int(found[0])

    def pids(self) -> Sequence[int]:
        postmaster = self._server.pid
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def close(self) -> None:
        self._asking.close()
        self._server.stop()

    def _connection(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self._server.socket), user="bench", dbname="postgres", autocommit=autocommit
        )

    def _take_enums_as_text(self) -> None:
        """Decode values that would otherwise be bytes."""
        found = self._asking.execute("SELECT oid FROM pg_type WHERE typtype = 'e'").fetchall()
        for (oid,) in found:
            self._asking.adapters.register_loader(oid, TextBinaryLoader)


def create_table(connection: psycopg.Connection[Any], enums: Mapping[str, Iterable[str]]) -> None:
    """Create the table, its sequence and `enums`, which are its types by name."""
    connection.execute("CREATE SEQUENCE rows_seq")
    for name, values in enums.items():
        listed = ", ".join(f"'{value}'" for value in sorted(values))
        connection.execute(f"CREATE TYPE {name} AS ENUM ({listed})")
    connection.execute(TABLE)


def create_indexes(connection: psycopg.Connection[Any]) -> None:
    """Create the indexes, which takes less time on a table that is filled."""
    for columns in INDEXES:
        connection.execute(f"CREATE INDEX ON rows (tenant, {columns}created_at DESC, seq DESC)")


class _Sender:
    """A connection that inserts rows as of now, one commit per request."""

    def __init__(self, connection: psycopg.Connection[Any], sample: list[Row]) -> None:
        self._connection = connection
        columns = [name for name in COLUMNS if name != "seq"]
        self._columns = f"tenant, {', '.join(columns)}"
        self._rows = [(TENANTS, *row[1:]) for row in sample]
        self._insert = (
            f"INSERT INTO rows ({self._columns}) VALUES ({', '.join(['%s'] * len(self._rows[0]))})"
        )

    def __enter__(self) -> Send:
        self._connection.__enter__()
        return self._send if len(self._rows) == 1 else self._copy

    def __exit__(self, *_: object) -> None:
        self._connection.__exit__(None, None, None)

    def _send(self) -> None:
        (row,) = self._now()
        self._connection.execute(self._insert, row, prepare=True)

    def _copy(self) -> None:
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY rows ({self._columns}) FROM STDIN") as copy,
        ):
            for row in self._now():
                copy.write_row(row)

    def _now(self) -> Iterator[Row]:
        now = datetime.now(UTC)
        return ((row[0], now, now, *row[3:]) for row in self._rows)
