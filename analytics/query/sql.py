"""The rows of a snapshot as SQL: files and journal batches as a table, a query as its condition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from analytics.model.cursors import Position
from analytics.model.filters import Order, Query, where
from analytics.model.instants import utc_day
from analytics.model.schema import AUDIT_SCHEMA, schema_of
from analytics.storage.segment_metadata import Segment

SCANS_MAX: Final = 16
"""Scans of files in one statement. Each has its own seq base, as a constant, which is quickest; and
each takes memory and planning of its own, so the files of all further bases share one for each
schema version, in which each row looks its base up. A tenant has as many bases as it has imported
files."""

COLUMNS: Final = ", ".join(AUDIT_SCHEMA.names)
_INSTANT: Final = AUDIT_SCHEMA.field("received_at").type


@dataclass(frozen=True, slots=True)
class Source:
    """A table expression, the values it binds and the Arrow tables it names."""

    sql: str
    bound: dict[str, Any]
    tables: dict[str, pa.Table] = field(default_factory=dict)


def source(
    root: Path, segments: Iterable[Segment], journal: pa.Table | None = None, *, files: bool = False
) -> Source:
    """The rows of `segments` below `root` and of `journal`; with `files` each row's file, too."""
    parts: list[str] = []
    bound: dict[str, Any] = {}
    tables: dict[str, pa.Table] = {}
    options = "hive_partitioning = false" + (", filename = true" if files else "")
    own, others = _by_seq_base(segments)
    for number, ((seq_base, version), held) in enumerate(own):
        replaced = {}
        if seq_base:
            replaced["seq"] = f"seq + $seq_base{number}"
            bound[f"seq_base{number}"] = seq_base
        if (received_at := held[0].received_at) is not None:  # that of all with this base
            replaced["received_at"] = f"$received_at{number}::TIMESTAMPTZ"
            bound[f"received_at{number}"] = received_at
        columns = _columns(version, replaced, files=files)
        parts.append(f"SELECT {columns} FROM read_parquet($files{number}, {options})")
        bound[f"files{number}"] = [str(segment.path(root)) for segment in held]
    for version, held in others.items():
        names = [str(segment.path(root)) for segment in held]
        tables[f"bases{version}"] = pa.table(
            {
                "filename": names,
                "seq_base": pa.array([segment.seq_base for segment in held], pa.int64()),
                "based_at": pa.array([segment.received_at for segment in held], _INSTANT),
            }
        )
        replaced = {
            "seq": "seq + seq_base",
            "received_at": "coalesce(based_at, received_at)",
        }
        parts.append(
            f"SELECT {_columns(version, replaced, files=files)}"
            f" FROM read_parquet($others{version}, hive_partitioning = false, filename = true)"
            f" JOIN bases{version} USING (filename)"
        )
        bound[f"others{version}"] = names
    if journal is not None:
        tables["journal"] = journal
        parts.append(f"SELECT {COLUMNS} FROM journal")
    return Source(" UNION ALL ".join(parts), bound, tables)


def condition(
    query: Query, watermark: int, after: Position | None = None, days: Sequence[date] | None = None
) -> tuple[str, dict[str, Any]]:
    """Which rows of `days` (None: any) up to `watermark` belong in the answer."""
    condition, bound = where(query)
    condition += " AND seq <= $watermark"
    bound["watermark"] = watermark
    if after is not None:
        # The position has that of its first page: rows accepted since are in none of its pages.
        bound["watermark"] = min(after.watermark, watermark)
    if after is not None and (days is None or utc_day(after.created_at) in days):
        bound["at"], bound["after_seq"] = after.created_at, after.seq
        comes = "<" if query.order is Order.NEWEST_FIRST else ">"
        # The first half repeats what the second implies, in the form that skips row groups.
        condition += (
            f" AND created_at {comes}= $at::TIMESTAMPTZ AND (created_at {comes} $at::TIMESTAMPTZ"
            f" OR seq {comes} $after_seq)"
        )
    return condition, bound


def ordering(query: Query) -> str:
    """What `query`'s rows are ordered by."""
    return f"created_at {query.order.value}, seq {query.order.value}"


def _columns(version: int, replaced: Mapping[str, str], *, files: bool) -> str:
    """What a scan of files of schema `version` selects: null for columns that they lack.

    `replaced` has the columns that the files do not have as the catalog means them.
    """
    stored = schema_of(version, "a segment").names
    lacking = {name: "NULL::VARCHAR" for name in AUDIT_SCHEMA.names if name not in stored}
    computed = lacking | dict(replaced)
    columns = [
        f"{computed[name]} AS {name}" if name in computed else name for name in AUDIT_SCHEMA.names
    ]
    return ", ".join([*columns, "filename"] if files else columns)


_Base = tuple[int, int]
"""A seq base and a schema version."""


def _by_seq_base(
    segments: Iterable[Segment],
) -> tuple[list[tuple[_Base, list[Segment]]], dict[int, list[Segment]]]:
    """`segments` by base: those of the SCANS_MAX with most rows, and the others by version."""
    bases: dict[_Base, list[Segment]] = {}
    for segment in segments:
        bases.setdefault((segment.seq_base, segment.schema_version), []).append(segment)
    ordered = sorted(bases.items(), key=lambda base: sum(s.rows for s in base[1]), reverse=True)
    others: dict[int, list[Segment]] = {}
    for (_, version), held in ordered[SCANS_MAX:]:
        others.setdefault(version, []).extend(held)
    return ordered[:SCANS_MAX], others
