"""Which decoded rows belong in an answer, and in which order: as DuckDB decides it, in Arrow."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.cursors import Position
from analytics.model.filters import Order, Query, mask
from analytics.model.schema import AUDIT_SCHEMA

_INSTANT: Final = AUDIT_SCHEMA.field("created_at").type
_SEQ: Final = AUDIT_SCHEMA.field("seq").type


def matches(
    query: Query, rows: pa.Table, watermark: int, after: Position | None = None
) -> pa.UInt64Array:
    """The places in `rows` of those of `query`, up to `watermark`, that come after `after`."""
    wanted = pc.and_(mask(query, rows), pc.less_equal(rows["seq"], pa.scalar(watermark, _SEQ)))
    if after is not None:
        comes = pc.less if query.order is Order.NEWEST_FIRST else pc.greater
        at, seq = pa.scalar(after.created_at, _INSTANT), pa.scalar(after.seq, _SEQ)
        is_same = pc.and_(pc.equal(rows["created_at"], at), comes(rows["seq"], seq))
        wanted = pc.and_(wanted, pc.or_(comes(rows["created_at"], at), is_same))
        wanted = pc.and_(wanted, pc.less_equal(rows["seq"], pa.scalar(after.watermark, _SEQ)))
    return pc.indices_nonzero(wanted)


def taken(rows: pa.Table, places: pa.UInt64Array) -> pa.Table:
    """The rows at `places`, which ascend; if they follow each other nothing is copied."""
    count = len(places)
    if count and places[-1].as_py() - places[0].as_py() == count - 1:
        return rows.slice(places[0].as_py(), count)
    return rows.take(places)


def first_of(rows: pa.Table, count: int, order: Order) -> pa.Array:
    """The places in `rows` of the first `count`, in `order`."""
    direction = "descending" if order is Order.NEWEST_FIRST else "ascending"
    by = [("created_at", direction), ("seq", direction)]
    return pc.select_k_unstable(rows.select(["created_at", "seq"]), count, by)
