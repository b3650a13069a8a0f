"""Counts over Arrow tables: what DuckDB would count, for rows that are in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import AUDIT_SCHEMA

TOP_MAX: Final = 10
"""How many of the most frequent values a summary names."""

_EMPTY: Final = pa.scalar("", pa.string())
_MICROSECOND: Final = timedelta(microseconds=1)
_LINES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with equal `values` (None: null): how many, how many of them blocked, and when."""

    values: tuple[str | None, ...]
    rows: int
    blocked: int
    first: datetime
    last: datetime


def by_value(rows: pa.Table, column: str, limit: int | None = None) -> pa.Table:
    """The values of `column` with their number of `rows`, most frequent first, `limit` of them.

    Ties are in the order of code points. Null and the empty string are no values.
    """
    counted = rows.group_by(column).aggregate([([], "count_all")]).rename_columns(["value", "rows"])
    counted = counted.filter(pc.not_equal(counted["value"], _EMPTY))
    return counted.sort_by([("rows", "descending"), ("value", "ascending")]).slice(0, limit)


def of_grouping(counted: pa.Table, columns: Sequence[str], column: str) -> pa.Table:
    """The rows by value of `column`, from counts by each of `columns` (SQL's GROUPING SETS).

    `others` has a bit for each column that a line was not grouped by, the first column's highest.
    """
    others = sum(1 << place for place, name in enumerate(reversed(columns)) if name != column)
    own = counted.filter(pc.equal(counted["others"], pa.scalar(others, counted["others"].type)))
    values = own.select([column, "rows"]).rename_columns(["value", "rows"])
    return values.filter(pc.not_equal(values["value"], _EMPTY))


def by_group(rows: pa.Table, columns: Sequence[str], limit: int) -> pa.Table:
    """The `limit` largest groups of `rows` with equal values of `columns`; see `group_schema`.

    Ties are in the order of code points, nulls last.
    """
    blocked = pc.equal(rows["decision"], pa.scalar("BLOCKED", pa.string()))
    counted = (
        rows.select([*columns, "created_at"])
        .append_column("blocked", pc.fill_null(blocked, pa.scalar(False, pa.bool_())))
        .group_by(list(columns))
        .aggregate(
            [([], "count_all"), ("blocked", "sum"), ("created_at", "min"), ("created_at", "max")]
        )
        .rename_columns([*columns, "rows", "blocked", "first", "last"])
        .cast(group_schema(columns))
    )
    order = [("rows", "descending"), *((column, "ascending") for column in columns)]
    return counted.sort_by(order).slice(0, limit)


def group_schema(columns: Sequence[str]) -> pa.Schema:
    """Groups: their values, number of rows, how many of them were blocked, first and last one."""
    at = AUDIT_SCHEMA.field("created_at").type
    return pa.schema(
        [
            *(pa.field(column, pa.string()) for column in columns),
            pa.field("rows", pa.int64()),
            pa.field("blocked", pa.int64()),
            pa.field("first", at),
            pa.field("last", at),
        ]
    )


def groups_of(groups: pa.Table) -> list[Group]:
    """The lines of a table of groups."""
    return [
        Group(tuple(line[:-4]), *line[-4:])
        # A part at a time: other threads wait while Arrow makes a list.
        for part in groups.to_batches(max_chunksize=_LINES_AT_ONCE)
        for line in zip(*(column.to_pylist() for column in part.columns), strict=True)
    ]


def top_of(counts: Mapping[str, int], number: int) -> list[tuple[str, int]]:
    """The `number` most frequent values, ties in the order of code points. "" is no value."""
    ranked = sorted((-rows, value) for value, rows in counts.items() if value and rows)
    return [(value, -rows) for rows, value in ranked[:number]]


def by_step(steps: pa.Array, values: pa.Array) -> pa.Table:
    """How many lines there are by step of time and value, as `step`, `value` and `rows`."""
    lines = pa.table({"step": steps, "value": values})
    if not lines.num_rows:  # of most alert rules: to group nothing takes as long as a few rows
        return lines.append_column("rows", steps)
    counted = lines.group_by(["step", "value"]).aggregate([([], "count_all")])
    return counted.rename_columns(["step", "value", "rows"])


def over_time(rows: pa.Table, step: timedelta, column: str | None = "decision") -> pa.Table:
    """How many `rows` there are by step of time (counted from 1970) and `column` ("": none)."""
    length = step // _MICROSECOND
    us = rows["created_at"].cast(pa.int64())
    # Division rounds towards zero: of numbers counted from before all instants, that is down.
    shift = (2**62 // length) * length
    steps = pc.subtract(
        pc.divide(pc.add(us, _whole(shift)), _whole(length)), _whole(shift // length)
    )
    named = pa.repeat(_EMPTY, len(rows)) if column is None else pc.fill_null(rows[column], _EMPTY)
    return by_step(steps, named)


def _whole(number: int) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())
