"""The engines that are compared: one module each, configured as an expert would."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow.parquet as pq

from analytics.model.cursors import Position
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from benchmarks.lake import all_segments, tenant_id
from benchmarks.workload import Export, Question

COLUMNS: Final = tuple(AUDIT_SCHEMA.names)
BUT_PAYLOAD: Final = tuple(name for name in COLUMNS if name != "payload")
Row = tuple[Any, ...]
Ask = Callable[[], Sequence[Row]]
"""A prepared question; its answer is rows as Python objects."""
Send = Callable[[], None]
"""One request of a client; its rows are durable when it returns."""


@dataclass(frozen=True)
class Source:
    """The generated rows: Parquet files by tenant and day, and a description of the set."""

    folder: Path
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, folder: Path, rows: int) -> "Source":
        """The set of `rows` rows in `folder`, generated unless it exists."""
        return cls(folder, tuple(all_segments(folder, rows)))

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return sum(segment.rows for segment in self.segments)

    @property
    def largest(self) -> tuple[Segment, ...]:
        """The segments of the largest tenant, oldest first."""
        own = (segment for segment in self.segments if segment.tenant_id == tenant_id(0))
        return tuple(sorted(own, key=lambda segment: segment.day))

    @property
    def last_seq(self) -> int:
        """The highest `seq` of all rows."""
        return max(segment.max_seq for segment in self.segments)

    def table(self, segment: Segment) -> Any:  # noqa: ANN401 - pyarrow ships no type information
        """The rows of `segment`, AUDIT_SCHEMA."""
        return pq.read_table(segment.path(self.folder / "audit"), partitioning=None)

    def sample(self, count: int) -> list[Row]:
        """`count` rows of the newest day of the largest tenant, as new rows would look."""
        rows = rows_of(self.table(self.largest[-1]).slice(0, count))
        return [rows[number % len(rows)] for number in range(count)]


class Engine(Protocol):
    """One engine over one set of rows. All its data is in its own folder."""

    needs_bytes_a_row: int
    """Approximate disk space needed while it loads."""
    setup: str
    """Its configuration, for readers of the figures."""

    def __init__(self, folder: Path, source: Source) -> None: ...

    def version(self) -> str:
        """Its name and version."""

    def load(self) -> None:
        """Load all rows of the source, into the state in which questions are fastest."""

    def open(self) -> None:
        """Prepare for questions about the loaded rows."""

    def ready(self, question: Question, after: Position | None) -> Ask:
        """Prepare `question`, continued after `after` if given."""

    def flush(self) -> None:
        """Do the work that it would do in the background after a question."""

    def export(self, export: Export) -> int:
        """Produce the whole export and discard it; the number of its rows."""

    def serving(self) -> "AbstractContextManager[Served] | None":
        """A web server over these rows, or None if there is none to compare."""

    def pids(self) -> Sequence[int]:
        """The processes whose memory counts as the engine's."""

    def close(self) -> None:
        """Release memory and processes; loaded data stays."""


@runtime_checkable
class StoringEngine(Engine, Protocol):
    """An engine with a durable store of its own, which can add and drop rows."""

    loads: int | None
    """Version of its loaded data, which later runs of this version may reuse; None: never."""

    def bytes_on_disk(self) -> int:
        """The size of all rows, including indexes."""

    def ingesting(
        self, rows: int
    ) -> AbstractContextManager[Callable[[], AbstractContextManager[Send]]]:
        """Clients that add `rows` rows per request, each opened in its own thread."""

    def forget_ingested(self) -> None:
        """Restore the state before `ingesting`."""

    def prune(self, day: date) -> None:
        """Drop the largest tenant's rows of `day`."""

    def restore(self, days: Sequence[date]) -> None:
        """Restore the rows of pruned `days`."""


@dataclass(frozen=True)
class Served:
    """The address of a web server's pages: `path` takes filters and `limit` like the API."""

    port: int
    path: str
    headers: dict[str, str]


ENGINES: Final = {
    "countersign": "Countersign",
    "postgres": "PostgreSQL",
    "clickhouse": "ClickHouse",
    "sqlite": "SQLite",
    "duckdb": "DuckDB alone",
}
"""Module and name of each engine, in the order of measurement; ours is first."""


def engine_class(name: str) -> type[Engine]:
    """The engine of the module `name`. Raises ImportError if its driver is not installed."""
    found: type[Engine] = import_module(f"benchmarks.engines.{name}").ThisEngine
    return found


def rows_of(table: Any) -> list[Row]:  # noqa: ANN401 - pyarrow ships no type information
    """An Arrow table (AUDIT_SCHEMA) as rows; instants as microseconds, the cheapest form."""
    columns = [
        (table[name].cast("int64") if name in INSTANTS else table[name]).to_pylist()
        for name in COLUMNS
    ]
    return list(zip(*columns, strict=True))


INSTANTS: Final = frozenset({"created_at", "received_at"})


def folder_bytes(folder: Path) -> int:
    """The size of the files below `folder`."""
    return sum(path.stat().st_size for path in files_below(folder))


def files_below(folder: Path) -> Iterator[Path]:
    """Every regular file below `folder`."""
    return (path for path in folder.rglob("*") if path.is_file())
