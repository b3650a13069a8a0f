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
from analytics.model.schema import AUDIT_SCHEMA, JOURNAL_SCHEMA
from analytics.storage.segment_metadata import Segment

SCANS_MAX: Final = 16
"""Scans of files in one statement. Each has its own seq base, as a constant, which is quickest; and
each takes memory and planning of its own, so the files of all further bases share one, in which
each row looks its base up. A tenant has as many bases as it has imported files."""

COLUMNS: Final = ", ".join(AUDIT_SCHEMA.names)
_ALL_BUT_SEQ: Final = ", ".join(JOURNAL_SCHEMA.names)


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
    rest = _ALL_BUT_SEQ + (", filename" if files else "")
    options = "hive_partitioning = false" + (", filename = true" if files else "")
    own, others = _by_seq_base(segments)
    for number, (seq_base, held) in enumerate(own):
        seq = "seq"
        if seq_base:
            seq = f"seq + $seq_base{number} AS seq"
            bound[f"seq_base{number}"] = seq_base
        parts.append(f"SELECT {seq}, {rest} FROM read_parquet($files{number}, {options})")
        bound[f"files{number}"] = [str(segment.path(root)) for segment in held]
    if others:
        names = [str(segment.path(root)) for segment in others]
        bases = pa.array([segment.seq_base for segment in others], pa.int64())
        tables["bases"] = pa.table({"filename": names, "seq_base": bases})
        parts.append(
            f"SELECT seq + seq_base AS seq, {rest}"
            " FROM read_parquet($others, hive_partitioning = false, filename = true)"
            " JOIN bases USING (filename)"
        )
        bound["others"] = names
    if journal is not None:
        tables["journal"] = journal
        parts.append(f"SELECT {COLUMNS} FROM journal")
    return Source(" UNION ALL ".join(parts), bound, tables)


def condition(
    query: Query, watermark: int, after: Position | None = None, days: Sequence[date] | None = None
) -> tuple[str, dict[str, Any]]:
    """Which rows of `days` (None: any) up to `watermark` belong into the answer."""
    condition, bound = where(query)
    condition += " AND seq <= $watermark"
    bound["watermark"] = watermark
    if after is not None:
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


def _by_seq_base(
    segments: Iterable[Segment],
) -> tuple[list[tuple[int, list[Segment]]], list[Segment]]:
    """`segments` by their seq base: those of the SCANS_MAX bases with most rows, and the others."""
    bases: dict[int, list[Segment]] = {}
    for segment in segments:
        bases.setdefault(segment.seq_base, []).append(segment)
    ordered = sorted(bases.items(), key=lambda base: sum(s.rows for s in base[1]), reverse=True)
    return ordered[:SCANS_MAX], [s for _, held in ordered[SCANS_MAX:] for s in held]
