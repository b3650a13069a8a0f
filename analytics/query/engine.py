"""DuckDB, locked down: it reads the audit folder and Arrow tables it is handed, nothing else."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import duckdb
import pyarrow as pa

from analytics.model.errors import StoreFault

STREAM_BATCH_ROWS: Final = 16_384
"""Rows a stream holds at a time; with the widest rows some 50 MB."""

# A damaged file can hold column names that are no text: the binding then fails to decode them.
_FAULTS: Final = (duckdb.Error, pa.ArrowException, UnicodeDecodeError)


class QueryStopped(StoreFault):
    """The query was ended from outside; see `Cancellation`."""


class Cancellation:
    """Ends one caller's queries from another thread: the one that runs, and any that follows."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._is_set = False

    def set(self) -> None:
        """End the query. One that is just about to begin may miss it: set it until it ends."""
        with self._lock:
            self._is_set = True
            if self._cursor is not None:
                with contextlib.suppress(duckdb.Error):
                    self._cursor.interrupt()

    def check(self) -> None:
        """Raise QueryStopped if it is set: for what runs without DuckDB."""
        with self._lock:
            if self._is_set:
                raise QueryStopped("the query was stopped")

    @contextmanager
    def over(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `set` reach what `cursor` runs meanwhile. Raises QueryStopped."""
        with self._lock:
            # Under the lock: `set` comes before this check, or finds the cursor to interrupt.
            if self._is_set:
                raise QueryStopped("the query was stopped before it began")
            self._cursor = cursor
        try:
            yield
        except duckdb.InterruptException as error:
            raise QueryStopped(str(error)) from error
        finally:
            with self._lock:
                self._cursor = None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What all queries of one process may use together."""

    memory_mb: int
    temp_mb: int
    threads: int


class Engine:
    """Runs SQL over explicit Parquet files and Arrow tables. Safe to use from several threads."""

    def __init__(self, root: Path, temp: Path, limits: EngineLimits) -> None:
        """An engine that may read below `root` and spill below `temp`, and nowhere else.

        It is opened by `open`, or by its first query: most commands ask none.
        """
        self._lockdown = tuple(_lockdown(root, temp, limits))
        self._opening = Lock()
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._cursors: set[duckdb.DuckDBPyConnection] = set()

    def open(self) -> None:
        """Open DuckDB, which takes 20 ms or more that the first query then need not wait for.

        Raises StoreFault.
        """
        self._connection()

    def select(
        self,
        sql: str,
        bound: Mapping[str, Any],
        tables: Mapping[str, pa.Table],
        stop: Cancellation | None = None,
    ) -> pa.Table:
        """The whole result of `sql`. `tables` are visible to it by name. Raises StoreFault."""
        with self._cursor(tables) as cursor, (stop or Cancellation()).over(cursor):
            try:
                return cursor.sql(sql, params=dict(bound)).to_arrow_table()
            except duckdb.InterruptException:
                raise
            except _FAULTS as error:
                raise StoreFault(str(error)) from error

    def stream(
        self,
        sql: str,
        bound: Mapping[str, Any],
        tables: Mapping[str, pa.Table],
        stop: Cancellation | None = None,
    ) -> Iterator[pa.Table]:
        """The result of `sql` in tables of at most STREAM_BATCH_ROWS rows. Raises StoreFault."""
        stop = stop or Cancellation()
        with self._cursor(tables) as cursor, stop.over(cursor):
            try:
                reader = cursor.sql(sql, params=dict(bound)).to_arrow_reader(STREAM_BATCH_ROWS)
                for batch in reader:
                    yield pa.Table.from_batches([batch])
            # Arrow hands on what DuckDB raises as an OSError, also when it is interrupted.
            except (*_FAULTS, OSError) as error:
                stop.check()
                raise StoreFault(str(error)) from error

    def close(self) -> None:
        """Release files and memory; running queries fail, and soon."""
        for cursor in tuple(self._cursors):
            with contextlib.suppress(duckdb.Error):
                cursor.interrupt()
        # DuckDB refuses while a query has not yet noticed; it releases its own when it does.
        with self._opening, contextlib.suppress(duckdb.ResourceInUseException):
            if self._opened is not None:
                self._opened.close()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            if self._opened is None:
                try:
                    connection = duckdb.connect(":memory:")
                    for statement in self._lockdown:
                        connection.execute(statement)
                except _FAULTS as error:
                    raise StoreFault(str(error)) from error
                self._opened = connection
            return self._opened

    @contextmanager
    def _cursor(self, tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own, so that two queries never see each other's tables."""
        with self._connection().cursor() as cursor:
            self._cursors.add(cursor)
            try:
                for name, table in tables.items():
                    cursor.register(name, table)
                yield cursor
            finally:
                self._cursors.discard(cursor)


def _lockdown(root: Path, temp: Path, limits: EngineLimits) -> Iterator[str]:
    # What is a session's own setting needs GLOBAL: cursors are sessions and would not inherit it.
    yield "SET GLOBAL TimeZone = 'UTC'"
    yield "SET GLOBAL python_enable_replacements = false"
    # Segments never change: a footer that was read once need not be read again.
    yield "SET GLOBAL parquet_metadata_cache = true"
    # DuckDB would read the rows of a short page in a second pass, by their places. That is for
    # common values, which we answer without it; rare ones it finds in half the time in one pass.
    yield "SET GLOBAL late_materialization_max_rows = 0"
    yield f"SET threads = {limits.threads:d}"
    yield f"SET memory_limit = '{limits.memory_mb:d}MB'"
    yield f"SET temp_directory = {_literal(temp)}"
    yield f"SET max_temp_directory_size = '{limits.temp_mb:d}MB'"
    yield "SET autoinstall_known_extensions = false"
    yield "SET autoload_known_extensions = false"
    yield "SET allow_community_extensions = false"
    yield f"SET allowed_directories = [{_literal(root)}, {_literal(temp)}]"
    # After the folders, which DuckDB does not change once access is off.
    yield "SET enable_external_access = false"
    # Last: from here on no statement changes a setting.
    yield "SET lock_configuration = true"


def _literal(path: Path) -> str:
    """A path from the settings as an SQL string: SET takes no bound parameters."""
    return "'" + str(path).replace("'", "''") + "'"
