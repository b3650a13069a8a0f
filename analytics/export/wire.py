"""The wire form of rows, as JSON objects or as an Arrow table."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import AUDIT_SCHEMA, ID_DIGITS, ID_PREFIX, WIRE_COLUMNS, audit_id

_NAIVE: Final = pa.timestamp("us")

_Entry: Final = msgspec.defstruct("_Entry", [(name, Any) for name in WIRE_COLUMNS], gc=False)
_encoder: Final = msgspec.json.Encoder()


WIRE_SCHEMA: Final = pa.schema(
    pa.field(name, pa.string(), nullable=False)
    if column in {"seq", ""}
    else AUDIT_SCHEMA.field(column).with_name(name)
    for name, column in WIRE_COLUMNS.items()
)
"""The wire form of a row for typed formats: ids are text, instants are timestamps."""


def json_objects(rows: pa.Table, tenant_id: str) -> list[str]:
    """Each row as one JSON object on one line, keys as in WIRE_COLUMNS, every key there.

    For the rows of a page; `analytics.export.text_encoder` is quicker for very many.
    """
    values = wire_values(rows, tenant_id)
    values["payload"] = map(_raw, values["payload"])
    return [_encoder.encode(entry).decode() for entry in map(_Entry, *values.values())]


def wire_values(rows: pa.Table, tenant_id: str) -> dict[str, Iterable[Any]]:
    """The values of each of WIRE_COLUMNS, in their order: text or None."""
    special: dict[str, Callable[[], Iterable[Any]]] = {
        "id": lambda: map(audit_id, rows["seq"].to_pylist()),
        "tenant_id": lambda: repeat(tenant_id, rows.num_rows),
        "created_at": lambda: _instants(rows["created_at"]),
        "received_at": lambda: _instants(rows["received_at"]),
    }
    return {
        name: special[name]() if name in special else rows[column].to_pylist()
        for name, column in WIRE_COLUMNS.items()
    }


def _instants(column: pa.ChunkedArray) -> Iterator[str]:
    """Their wire spelling, of Arrow's own: a `datetime` with its zone takes ten times as long."""
    spelt = column.cast(_NAIVE).cast(pa.string()).to_pylist()
    return (f"{text[:10]}T{text[11:]}Z" for text in spelt)


def _raw(payload: str | None) -> msgspec.Raw | None:
    """Values that are JSON already and are inserted unchanged.

    A line break can only occur between tokens, where a space means the same.
    """
    return None if payload is None else msgspec.Raw(payload.replace("\n", " ").replace("\r", " "))


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
