"""The rows of a snapshot as SQL: files and journal batches as a table, a query as its condition."""

from collections.abc import Iterable, Sequence
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
        seq = "seq"
        if seq_base:
            seq = f"seq + $seq_base{number} AS seq"
            bound[f"seq_base{number}"] = seq_base
        rest = _all_but_seq(version, files=files)
        parts.append(f"SELECT {seq}, {rest} FROM read_parquet($files{number}, {options})")
        bound[f"files{number}"] = [str(segment.path(root)) for segment in held]
    for version, held in others.items():
        names = [str(segment.path(root)) for segment in held]
        bases = pa.array([segment.seq_base for segment in held], pa.int64())
        tables[f"bases{version}"] = pa.table({"filename": names, "seq_base": bases})
        parts.append(
            f"SELECT seq + seq_base AS seq, {_all_but_seq(version, files=files)}"
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


def _all_but_seq(version: int, *, files: bool) -> str:
    """What a scan of files of schema `version` selects besides `seq`: null for what they lack."""
    stored = schema_of(version, "a segment").names
    columns = [
        name if name in stored else f"NULL::VARCHAR AS {name}"
        for name in AUDIT_SCHEMA.names
        if name != "seq"
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
