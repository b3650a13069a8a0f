"""The engines that are compared: one module each, set up the way somebody who knows it would."""

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
"""A question that is ready to be asked; its answer are rows in the hands of a Python program."""
Send = Callable[[], None]
"""One request of a client: when it returns, its rows are durable."""


@dataclass(frozen=True)
class Source:
    """The generated rows: Parquet files of a tenant and day each, and what the set consists of."""

    folder: Path
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, folder: Path, rows: int) -> "Source":
        """The set of `rows` rows in `folder`, generated unless it is there."""
        return cls(folder, tuple(all_segments(folder, rows)))

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
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
        """`count` rows of the newest day of the largest tenant, as they might come in now."""
        rows = rows_of(self.table(self.largest[-1]).slice(0, count))
        return [rows[number % len(rows)] for number in range(count)]


class Engine(Protocol):
    """One engine over one set of rows. What it keeps lies below its own folder."""

    needs_bytes_a_row: int
    """Room on the disk while it loads, about."""
    setup: str
    """What it was given, for the reader of the figures."""

    def __init__(self, folder: Path, source: Source) -> None: ...

    def version(self) -> str:
        """Its name and version."""

    def load(self) -> None:
        """Take in all rows of the source, up to where questions are best asked."""

    def open(self) -> None:
        """Get ready for questions about what was loaded."""

    def ready(self, question: Question, after: Position | None) -> Ask:
        """`question`, behind `after` if given, prepared."""

    def flush(self) -> None:
        """Do what it would do aside after it was asked something."""

    def export(self, export: Export) -> int:
        """Make the whole text, throw it away, and say how many rows were in it."""

    def serving(self) -> "AbstractContextManager[Served] | None":
        """A web server over these rows, if there is one to compare."""

    def pids(self) -> Sequence[int]:
        """The processes whose memory is the engine's."""

    def close(self) -> None:
        """Let go of memory and processes; what was loaded stays."""


@runtime_checkable
class StoringEngine(Engine, Protocol):
    """An engine that has a durable store of its own: it takes rows in, and drops them."""

    loads: int | None
    """The version of what it loads, which may serve a later run of the same version; None: none."""

    def bytes_on_disk(self) -> int:
        """What all rows take, indexes included."""

    def ingesting(
        self, rows: int
    ) -> AbstractContextManager[Callable[[], AbstractContextManager[Send]]]:
        """Clients that add `rows` rows a request, each opened in its own thread."""

    def forget_ingested(self) -> None:
        """Be as before `ingesting`."""

    def prune(self, day: date) -> None:
        """Drop the largest tenant's rows of `day`."""

    def restore(self, days: Sequence[date]) -> None:
        """Have the rows of pruned `days` again."""


@dataclass(frozen=True)
class Served:
    """Where a web server answers for pages: `path` takes filters and `limit` as the API does."""

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
"""Module and name of each, in the order in which they are measured; ours answers first."""


def engine_class(name: str) -> type[Engine]:
    """The engine of the module `name`. Raises ImportError where its driver is not installed."""
    found: type[Engine] = import_module(f"benchmarks.engines.{name}").ThisEngine
    return found


def rows_of(table: Any) -> list[Row]:  # noqa: ANN401 - pyarrow ships no type information
    """An Arrow table (AUDIT_SCHEMA) as rows; instants as microseconds, which takes no detour."""
    columns = [
        (table[name].cast("int64") if name in INSTANTS else table[name]).to_pylist()
        for name in COLUMNS
    ]
    return list(zip(*columns, strict=True))


INSTANTS: Final = frozenset({"created_at", "received_at"})


def folder_bytes(folder: Path) -> int:
    """What the files below `folder` take."""
    return sum(path.stat().st_size for path in files_below(folder))


def files_below(folder: Path) -> Iterator[Path]:
    """Every regular file below `folder`."""
    return (path for path in folder.rglob("*") if path.is_file())
