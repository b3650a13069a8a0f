"""SQLite: one table by seq, and an index in the page's order for every filter."""

import csv
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from analytics.model.cursors import Position
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from benchmarks.engines import (
    BUT_PAYLOAD,
    COLUMNS,
    INSTANTS,
    Ask,
    Row,
    Send,
    Source,
    folder_bytes,
    rows_of,
)
from benchmarks.engines.sql import Dialect, statement
from benchmarks.lake import TENANTS
from benchmarks.workload import Export, Question

# `seq` is the rowid, so every index ends in it without naming it.
INDEXED = ("", "event, ", "decision, ", "package_name, ", "actor, ")
DAY_US = 86_400_000_000
ROWS_A_FETCH = 10_000


def _column(name: str) -> str:
    if name == "seq":
        return "seq INTEGER PRIMARY KEY"
    return f"{name} {'INTEGER' if name in INSTANTS else 'TEXT'}" + (
        "" if AUDIT_SCHEMA.field(name).nullable else " NOT NULL"
    )


TABLE = f"CREATE TABLE rows (tenant INTEGER NOT NULL, {', '.join(map(_column, COLUMNS))})"
MARKS = ", ".join("?" * (len(COLUMNS) + 1))
INSERT = f"INSERT INTO rows (tenant, {', '.join(COLUMNS)}) VALUES ({MARKS})"


class _Dialect(Dialect):
    day = f"created_at / {DAY_US}"

    def bind(self, name: str, value: object) -> str:
        return f":{name}"

    def behind(self, after: Position, bound: dict[str, Any]) -> str:
        condition = super().behind(after, bound)
        bound["at"] = _us(after.created_at)
        return condition


class ThisEngine:
    """Python's own sqlite3 library, in this process."""

    needs_bytes_a_row = 800
    loads = 2
    setup = (
        "WAL with synchronous=FULL, pages of 8 KiB, 2 GB of cache, memory-mapped; instants as"
        " integers, tenants as integers, seq as rowid; indexes on (tenant, created_at) and with"
        " event, decision, package, actor before the instant, made after the rows; ANALYZE."
        " Exports by Python's csv and SQLite's json_object. One writer at a time, in turn"
    )

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder, self._source = folder, source
        self._path = folder / "rows.db"
        self._writing = Lock()

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def load(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        connection = self._connection()
        connection.execute(TABLE)
        connection.execute("BEGIN")
        for segment in sorted(self._source.segments, key=lambda segment: segment.min_seq):
            self._insert(connection, segment)
        connection.execute("COMMIT")
        for column in INDEXED:
            name = f"by_{column.strip(', ') or 'time'}"
            connection.execute(f"CREATE INDEX {name} ON rows (tenant, {column}created_at)")
        connection.execute("ANALYZE")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def _insert(self, connection: sqlite3.Connection, segment: Segment) -> None:
        rank = int(segment.tenant_id[-2:])
        rows = rows_of(self._source.table(segment))
        rows.reverse()  # oldest first, which is how seq grows
        connection.executemany(INSERT, ((rank, *row) for row in rows))

    def open(self) -> None:
        self._asking = self._connection()

    def ready(self, question: Question, after: Position | None) -> Ask:
        said = statement(_Dialect(), question, after)
        return lambda: self._asking.execute(said.sql, said.bound).fetchall()

    def flush(self) -> None:
        """Do nothing."""

    def export(self, export: Export) -> int:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            if export.format == "csv":
                cursor = self._asking.execute(
                    f"SELECT {', '.join(COLUMNS)} FROM rows WHERE tenant = 0"
                )
                writer = csv.writer(nowhere, lineterminator="\n")
                writer.writerow(COLUMNS)
                return _counted(cursor, writer.writerows)
            pairs = ", ".join(f"'{name}', {name}" for name in BUT_PAYLOAD)
            cursor = self._asking.execute(
                f"SELECT json_object({pairs}, 'payload', json(payload)) || char(10) FROM rows"
                " WHERE tenant = 0"
            )
            return _counted(cursor, lambda rows: nowhere.writelines(line for (line,) in rows))

    @contextmanager
    def ingesting(self, rows: int) -> Iterator[Callable[[], "_Sender"]]:
        connection = self._connection()
        sample = self._source.sample(rows)
        yield lambda: _Sender(connection, self._writing, sample)
        connection.close()

    def forget_ingested(self) -> None:
        self._asking.execute(f"DELETE FROM rows WHERE tenant = {TENANTS}")

    def prune(self, day: date) -> None:
        at = datetime(day.year, day.month, day.day, tzinfo=UTC)
        self._asking.execute(
            "DELETE FROM rows WHERE tenant = 0 AND created_at >= ? AND created_at < ?",
            (_us(at), _us(at + timedelta(days=1))),
        )

    def restore(self, days: Sequence[date]) -> None:
        self._asking.execute("BEGIN")
        for segment in self._source.largest:
            if segment.day in days:
                self._insert(self._asking, segment)
        self._asking.execute("COMMIT")

    def serving(self) -> None:
        return None

    def bytes_on_disk(self) -> int:
        self._asking.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return folder_bytes(self._folder)

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._asking.close()

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for pragma in (
            "page_size = 8192",
            "journal_mode = WAL",
            "synchronous = FULL",
            "cache_size = -2000000",
            f"mmap_size = {2**40}",
            "temp_store = MEMORY",
            f"threads = {os.cpu_count()}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection


class _Sender:
    """The single writing connection, used for one transaction at a time."""

    def __init__(self, connection: sqlite3.Connection, writing: Lock, sample: list[Row]) -> None:
        self._connection, self._writing = connection, writing
        self._rows = [(TENANTS, None, *row[1:]) for row in sample]

    def __enter__(self) -> Send:
        return self._send

    def __exit__(self, *_: object) -> None:
        """Do nothing: other clients still use the connection."""

    def _send(self) -> None:
        now = time.time_ns() // 1000
        rows = [(tenant, None, now, now, *rest) for tenant, _, _, _, *rest in self._rows]
        with self._writing:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, rows)
            self._connection.execute("COMMIT")


def _counted(cursor: sqlite3.Cursor, write: Callable[[list[Row]], object]) -> int:
    count = 0
    while rows := cursor.fetchmany(ROWS_A_FETCH):
        write(rows)
        count += len(rows)
    return count


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
