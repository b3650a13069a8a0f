"""Counts over Arrow tables: what DuckDB would count, for rows that are in memory."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_EMPTY: Final = pa.scalar("", pa.string())
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def by_value(rows: pa.Table, column: str, limit: int | None = None) -> pa.Table:
    """The values of `column` with their number of `rows`, most frequent first, `limit` of them.

    Of equals the one that sorts first by code points. Null and the empty string are no values.
    """
    counted = rows.group_by(column).aggregate([([], "count_all")]).rename_columns(["value", "rows"])
    counted = counted.filter(pc.not_equal(counted["value"], _EMPTY))
    return counted.sort_by([("rows", "descending"), ("value", "ascending")]).slice(0, limit)


def top_of(counts: Mapping[str, int], number: int) -> list[tuple[str, int]]:
    """The `number` most frequent values; of equals the one that sorts first. "" is no value."""
    ranked = sorted((-rows, value) for value, rows in counts.items() if value and rows)
    return [(value, -rows) for rows, value in ranked[:number]]


def over_time(rows: pa.Table, step: timedelta) -> list[tuple[datetime, str, int]]:
    """How many `rows` there are by step of time (counted from 1970) and decision ("": none)."""
    length = step // _MICROSECOND
    us = rows["created_at"].cast(pa.int64())
    # Division cuts off towards zero: counted from before all instants, that is always down.
    shift = (2**62 // length) * length
    steps = pc.subtract(
        pc.divide(pc.add(us, _whole(shift)), _whole(length)), _whole(shift // length)
    )
    counted = (
        pa.table({"step": steps, "decision": pc.fill_null(rows["decision"], _EMPTY)})
        .group_by(["step", "decision"])
        .aggregate([([], "count_all")])
    )
    return [
        (_EPOCH + line["step"] * step, line["decision"], line["count_all"])
        for line in counted.to_pylist()
    ]


def _whole(number: int) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())
