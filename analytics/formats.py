"""Rows on their way out: one wire form, as JSON objects or as CSV lines."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import polars as pl
import pyarrow as pa

from analytics.schema import WIRE_COLUMNS

_FORMULA_START: Final = r"^[=+\-@'\t\r\n]"
_INSTANT: Final = "%Y-%m-%dT%H:%M:%S%.6fZ"


class ExportFormat(StrEnum):
    """What a file of rows looks like."""

    CSV = "csv"
    JSON = "json"


def json_objects(rows: pa.Table, tenant_id: str) -> list[str]:
    """Each row as one JSON object, keys as in WIRE_COLUMNS, every key there."""
    if rows.num_rows == 0:
        return []
    frame = _wire_frame(rows, tenant_id)
    columns = frame.drop("payload").columns
    objects = frame.select(
        # `payload` is JSON already: it goes in as it is, behind the columns polars encodes.
        pl.struct(columns).struct.json_encode().str.strip_suffix("}")
        + pl.lit(',"payload":')
        + pl.col("payload").fill_null("null")
        + pl.lit("}")
    )
    return objects.to_series().to_list()


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


def export_chunks(
    tables: Iterable[pa.Table], tenant_id: str, export_format: ExportFormat, *, is_raw: bool
) -> Iterator[bytes]:
    """A whole file of `tables`, piece by piece."""
    if export_format is ExportFormat.CSV:
        yield (",".join(WIRE_COLUMNS) + "\n").encode()
        for rows in tables:
            yield csv_lines(rows, tenant_id, is_raw=is_raw)
        return
    opening = "[\n"
    for rows in tables:
        if rows.num_rows:
            yield (opening + ",\n".join(json_objects(rows, tenant_id))).encode()
            opening = ",\n"
    yield b"[]\n" if opening == "[\n" else b"\n]\n"


def _wire_frame(rows: pa.Table, tenant_id: str) -> pl.DataFrame:
    """`rows` with wire names and wire spellings, all columns text."""
    frame = pl.DataFrame(pl.from_arrow(rows))
    special = {
        "id": pl.lit("aud_") + pl.col("seq").cast(pl.String).str.zfill(19),
        "tenant_id": pl.lit(tenant_id),
        "created_at": pl.col("created_at").dt.strftime(_INSTANT),
        "received_at": pl.col("received_at").dt.strftime(_INSTANT),
    }
    return frame.select(
        special.get(name, pl.col(column)).alias(name) for name, column in WIRE_COLUMNS.items()
    )
