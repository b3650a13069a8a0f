"""Rows on their way out: one wire form, as JSON objects, as CSV lines or as an Arrow table."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from analytics.schema import AUDIT_SCHEMA, ID_DIGITS, ID_PREFIX, WIRE_COLUMNS, audit_id

_GUARDED: Final = "=+-@'\t\r\n"
"""What a formula, or a guarded value, begins with."""

_FORMULA_START: Final = f"^[{re.escape(_GUARDED)}]"
_INSTANT: Final = "%Y-%m-%dT%H:%M:%S%.6fZ"
_NAIVE: Final = pa.timestamp("us")

_Entry: Final = msgspec.defstruct("_Entry", [(name, Any) for name in WIRE_COLUMNS], gc=False)
_encoder: Final = msgspec.json.Encoder()


WIRE_SCHEMA: Final = pa.schema(
    pa.field(name, pa.string(), nullable=False)
    if column in {"seq", ""}
    else AUDIT_SCHEMA.field(column).with_name(name)
    for name, column in WIRE_COLUMNS.items()
)
"""One row in its wire form, for formats that have types: ids are text, instants instants."""


def json_objects(rows: pa.Table, tenant_id: str) -> list[str]:
    """Each row as one JSON object on one line, keys as in WIRE_COLUMNS, every key there.

    For the rows of a page. For very many `json_text` is quicker, which takes longer to begin.
    """
    special: dict[str, Callable[[], Iterable[Any]]] = {
        "id": lambda: map(audit_id, rows["seq"].to_pylist()),
        "tenant_id": lambda: repeat(tenant_id, rows.num_rows),
        "created_at": lambda: _instants(rows["created_at"]),
        "received_at": lambda: _instants(rows["received_at"]),
        "payload": lambda: map(_raw, rows["payload"].to_pylist()),
    }
    columns = (
        special[name]() if name in special else rows[column].to_pylist()
        for name, column in WIRE_COLUMNS.items()
    )
    return [_encoder.encode(entry).decode() for entry in map(_Entry, *columns)]


def _instants(column: pa.ChunkedArray) -> Iterator[str]:
    """Their wire spelling, of Arrow's own: a `datetime` with its zone takes ten times as long."""
    spelt = column.cast(_NAIVE).cast(pa.string()).to_pylist()
    return (f"{text[:10]}T{text[11:]}Z" for text in spelt)


def _raw(payload: str | None) -> msgspec.Raw | None:
    """JSON already, which goes in as it is.

    A line break in it can only stand between tokens, where a space means the same.
    """
    return None if payload is None else msgspec.Raw(payload.replace("\n", " ").replace("\r", " "))


def json_text(rows: pa.Table, tenant_id: str, separator: str) -> bytes:
    """The objects of `rows`, at least one, with `separator` between them."""
    frame = _wire_frame(rows, tenant_id)
    columns = frame.drop("payload").columns
    objects = frame.select(
        # `payload` goes in as `_raw` has it, behind the columns polars encodes.
        pl.struct(columns).struct.json_encode().str.strip_suffix("}")
        + pl.lit(',"payload":')
        + pl.col("payload").fill_null("null").str.replace_many(["\n", "\r"], [" ", " "])
        + pl.lit("}")
    )
    joined: str = objects.to_series().str.join(separator).item()
    return joined.encode()


def csv_lines(rows: pa.Table, tenant_id: str, *, is_raw: bool) -> bytes:
    """`rows` as CSV without a header (RFC 4180, UTF-8, LF).

    Unless `is_raw`, a value a spreadsheet could take for a formula gets a `'` before it, as does
    one that begins with `'`, so that taking the first one away restores every value.
    """
    frame = _wire_frame(rows, tenant_id)
    if not is_raw:
        frame = frame.with_columns(
            pl.when(pl.col(pl.String).str.contains(_FORMULA_START))
            .then(pl.lit("'") + pl.col(pl.String))
            .otherwise(pl.col(pl.String))
            .name.keep()
        )
    return frame.write_csv(include_header=False, quote_style="necessary").encode()


def unguarded(value: str) -> str:
    """What `value` was before `csv_lines` guarded it; other values stay as they are."""
    return value[1:] if value[:1] == "'" and value[1:2] and value[1] in _GUARDED else value


def wire_table(rows: pa.Table, tenant_id: str) -> pa.Table:
    """`rows` as a WIRE_SCHEMA table."""
    digits = pc.utf8_lpad(pc.cast(rows.column("seq"), pa.string()), ID_DIGITS, "0")
    special = {
        "id": pc.binary_join_element_wise(ID_PREFIX, digits, ""),
        "tenant_id": pa.repeat(pa.scalar(tenant_id), rows.num_rows),
    }
    return pa.table(
        [
            special[name] if name in special else rows.column(column)
            for name, column in WIRE_COLUMNS.items()
        ],
        schema=WIRE_SCHEMA,
    )


def _wire_frame(rows: pa.Table, tenant_id: str) -> pl.DataFrame:
    """`rows` with wire names and wire spellings, all columns text."""
    frame = pl.DataFrame(pl.from_arrow(rows))
    special = {
        "id": pl.lit(ID_PREFIX) + pl.col("seq").cast(pl.String).str.zfill(ID_DIGITS),
        "tenant_id": pl.lit(tenant_id),
        "created_at": pl.col("created_at").dt.strftime(_INSTANT),
        "received_at": pl.col("received_at").dt.strftime(_INSTANT),
    }
    return frame.select(
        special.get(name, pl.col(column)).alias(name) for name, column in WIRE_COLUMNS.items()
    )
