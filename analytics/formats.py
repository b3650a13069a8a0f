"""Rows on their way out: one wire form, as JSON objects or as an Arrow table."""

from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from analytics.schema import AUDIT_SCHEMA, ID_DIGITS, ID_PREFIX, WIRE_COLUMNS
from analytics.spellings import json_payload

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


def _json_objects(rows: pa.Table, tenant_id: str) -> pl.Series:
    frame = _wire_frame(rows, tenant_id)
    columns = frame.drop("payload").columns
    objects = frame.select(
        pl.struct(columns).struct.json_encode().str.strip_suffix("}")
        + pl.lit(',"payload":')
        + json_payload(pl.col("payload")).fill_null("null")
        + pl.lit("}")
    )
    return objects.to_series()


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
