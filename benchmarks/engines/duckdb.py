"""DuckDB alone, on the same files that Countersign wrote."""

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from analytics.model.cursors import Position
from benchmarks.engines import BUT_PAYLOAD, Ask, Source, rows_of
from benchmarks.engines.sql import Dialect, statement
from benchmarks.workload import Export, Page, Question

MOST = ", ".join(BUT_PAYLOAD)
EXPORTS = {
    "csv": "COPY rows TO '/dev/null' (FORMAT csv, HEADER)",
    "ndjson": f"COPY (SELECT {MOST}, payload::JSON AS payload FROM rows) TO '/dev/null'"
    " (FORMAT json)",
}


class _Dialect(Dialect):
    largest = "true"  # each tenant has its own files

    def begins(self, column: str, name: str, text: str, bound: dict[str, object]) -> str:
        bound[name] = text
        return f"starts_with({column}, ${name})"

    def behind(self, after: Position, bound: dict[str, object]) -> str:
        bound["at"], bound["seq"] = after.created_at, after.seq
        # The first half repeats what the second implies, in a form that skips row groups.
        return "created_at <= $at AND (created_at < $at OR seq < $seq)"


class ThisEngine:
    """A view over the largest tenant's Parquet files, in this process."""

    needs_bytes_a_row = 0
    setup = (
        "handed the Parquet files that Countersign wrote for this tenant, with their sorting,"
        " statistics and, in files of several row groups, Bloom filters; metadata cached, two"
        " threads. It loads nothing and has no durable way to take in a row"
    )

    def __init__(self, folder: Path, source: Source) -> None:
        self._source = source

    def version(self) -> str:
        return f"DuckDB {duckdb.__version__}"

    def load(self) -> None:
        """Do nothing: the files exist."""

    def open(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"threads": os.cpu_count() or 1})
        self._connection.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
        self._connection.execute("SET enable_progress_bar = false")
        root = self._source.folder / "audit"
        files = [str(segment.path(root)) for segment in reversed(self._source.largest)]
        self._connection.read_parquet(files, hive_partitioning=False).create_view("rows")

    def ready(self, question: Question, after: Position | None) -> Ask:
        said = statement(_Dialect(), question, after)
        if isinstance(question, Page):
            return lambda: rows_of(self._sql(said.sql, said.bound).to_arrow_table())
        return lambda: self._sql(said.sql, said.bound).fetchall()

    def _sql(self, sql: str, bound: dict[str, object]) -> duckdb.DuckDBPyRelation:
        return self._connection.sql(sql, params=bound)

    def flush(self) -> None:
        """Do nothing."""

    def export(self, export: Export) -> int:
        (count,) = self._connection.execute(EXPORTS[export.format]).fetchone() or (0,)
        return int(count)

    def serving(self) -> None:
        return None

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._connection.close()
