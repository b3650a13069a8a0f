"""Rows on their way out: one wire form, as JSON objects, as CSV lines or as an Arrow table."""

import re
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from analytics.schema import AUDIT_SCHEMA, ID_DIGITS, ID_PREFIX, WIRE_COLUMNS

_GUARDED: Final = "=+-@'\t\r\n"
"""What a formula, or a guarded value, begins with."""

_FORMULA_START: Final = f"^[{re.escape(_GUARDED)}]"
_INSTANT: Final = "%Y-%m-%dT%H:%M:%S%.6fZ"


WIRE_SCHEMA: Final = pa.schema(
    pa.field(name, pa.string(), nullable=False)
    if column in {"seq", ""}
    else AUDIT_SCHEMA.field(column).with_name(name)
    for name, column in WIRE_COLUMNS.items()
)
"""One row in its wire form, for formats that have types: ids are text, instants instants."""


def json_objects(rows: pa.Table, tenant_id: str) -> list[str]:
    """Each row as one JSON object on one line, keys as in WIRE_COLUMNS, every key there."""
    return _json_objects(rows, tenant_id).to_list() if rows.num_rows else []


def json_text(rows: pa.Table, tenant_id: str, separator: str) -> bytes:
    """The objects of `rows`, at least one, with `separator` between them."""
    joined: str = _json_objects(rows, tenant_id).str.join(separator).item()
    return joined.encode()


def _json_objects(rows: pa.Table, tenant_id: str) -> pl.Series:
    frame = _wire_frame(rows, tenant_id)
    columns = frame.drop("payload").columns
    objects = frame.select(
        # `payload` is JSON already: it goes in as it is, behind the columns polars encodes. A
        # line break in it can only stand between tokens, where a space means the same.
        pl.struct(columns).struct.json_encode().str.strip_suffix("}")
        + pl.lit(',"payload":')
        + pl.col("payload").fill_null("null").str.replace_many(["\n", "\r"], [" ", " "])
        + pl.lit("}")
    )
    return objects.to_series()


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
