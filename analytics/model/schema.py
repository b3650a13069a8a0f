"""The schema of audit rows in each version, and what else follows from the columns of AuditRow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, get_args, get_type_hints

import msgspec
import pyarrow as pa

from analytics.model.columns import Column, Section
from analytics.model.errors import StoreFault
from analytics.model.rows import AuditRow

_INSTANT: Final = pa.timestamp("us", tz="UTC")


def _column(name: str, annotation: Any) -> Column:  # noqa: ANN401 - an annotated type
    """The column that a field of AuditRow declares."""
    column: Column
    kind, column = get_args(annotation)
    return replace(
        column,
        name=name,
        wire=column.wire or name,
        type=_INSTANT if kind is datetime else column.type,
    )


_SEQ: Final = Column(
    field_id=1,
    name="seq",
    wire="id",
    label="Row id",
    type=pa.int64(),
    is_required=True,
    section=Section.REQUEST,
    place=8,
)

COLUMNS: Final = (
    _SEQ,
    *(
        _column(name, annotation)
        for name, annotation in get_type_hints(AuditRow, include_extras=True).items()
    ),
)
"""The columns in the order in which they are stored."""

SCHEMA_VERSION: Final = max(column.since for column in COLUMNS)
"""What rows are written as."""

AUDIT_SCHEMA: Final = pa.schema([column.field for column in COLUMNS])
"""One stored row. The tenant and the day are in the path, so they are not columns.

It has no metadata: what Parquet files have besides is the writer's (`PARQUET_SCHEMA`).
"""

NO_ROWS: Final = AUDIT_SCHEMA.empty_table()
"""Created once: that takes pyarrow as long as a mask over a row group."""

_SCHEMAS: Final = {
    version: pa.schema([column.field for column in COLUMNS if column.since <= version])
    for version in range(1, SCHEMA_VERSION + 1)
}

JOURNAL_SCHEMA: Final = AUDIT_SCHEMA.remove(AUDIT_SCHEMA.get_field_index("seq"))
"""A row before the commit that gives it a `seq` (`analytics.storage.journal_batches`)."""

JOURNAL_SCHEMAS: Final = {len(schema) - 1: schema.remove(0) for schema in _SCHEMAS.values()}
"""The same in each version, by its number of columns: a later version has more."""


class NewerSchema(StoreFault):
    """Rows have columns that this version does not know."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was written by a newer version of Countersign: update this one")


def schema_of(version: int, what: str) -> pa.Schema:
    """The columns that rows of schema `version` have.

    Raises NewerSchema, which names `what` has those rows, for a version that is not known.
    """
    if version not in _SCHEMAS:
        raise NewerSchema(what)
    return _SCHEMAS[version]


def to_table(rows: Sequence[AuditRow]) -> pa.Table:
    """`rows` as a JOURNAL_SCHEMA table, in the same order."""
    columns = list(zip(*map(msgspec.structs.astuple, rows), strict=True))
    columns = columns or [()] * len(JOURNAL_SCHEMA)
    return pa.Table.from_arrays(
        [_array(values, field.type) for values, field in zip(columns, JOURNAL_SCHEMA, strict=True)],
        schema=JOURNAL_SCHEMA,
    )


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """`values` as an Arrow array. The rows of one request share most of their values."""
    if values and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def with_nulls(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with all columns of `schema`, null in those that they lack; they have no others."""
    if rows.num_columns == len(schema):
        return rows
    held = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns = [
        held[field.name] if field.name in held else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def with_received_at(rows: pa.Table, received_at: datetime) -> pa.Table:
    """`rows`, all received at that instant, if they have that column."""
    index = rows.schema.get_field_index("received_at")
    if index < 0:
        return rows
    instants = pa.repeat(pa.scalar(received_at, _INSTANT), rows.num_rows)
    return rows.set_column(index, AUDIT_SCHEMA.field("received_at"), instants)


def _moved(names: Iterable[str], places: Mapping[str, str]) -> list[str]:
    """`names`, those in `places` behind the one that is given there."""
    order = [name for name in names if name not in places]
    for name, before in places.items():
        order.insert(order.index(before) + 1, name)
    return order


_TENANT: Final = "tenant_id"
_STORED: Final = {column.wire: column.name for column in COLUMNS}

WIRE_COLUMNS: Final[dict[str, str]] = {
    name: _STORED.get(name, "")
    for name in _moved(_STORED, {"received_at": "source_ip", _TENANT: "verdict_source"})
}
"""Wire name to stored column, in the order of JSON keys and CSV headers.

`tenant_id` is not stored: a reader adds the tenant it asked for.
"""

_FILTERS: Final = {
    column.filter.name or column.name: replace(
        column.filter,
        name=column.filter.name or column.name,
        column=column.name,
        label=column.filter.label or column.label,
        noun=column.filter.noun or column.label.lower(),
        field=replace(column.filter.field, label=column.filter.field.label or column.label),
    )
    for column in COLUMNS
    if column.filter is not None
}

FILTER_PARAMETERS: Final = tuple(
    _FILTERS[name] for name in _moved(_FILTERS, {"verdict_source": "oidc_binding_id"})
)
"""The query parameters that filter rows, in the order of the API's document."""

ID_PREFIX: Final = "aud_"
ID_DIGITS: Final = 19  # the digits of the largest int64, so that ids sort like seq


def audit_id(seq: int) -> str:
    """The public id of the row with this `seq`; ids sort in the order of acceptance."""
    return f"{ID_PREFIX}{seq:0{ID_DIGITS}d}"


def parse_audit_id(text: str) -> int | None:
    """The `seq` in a public id, or None if `text` is not one."""
    digits = text.removeprefix(ID_PREFIX)
    if digits == text or len(digits) != ID_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    seq = int(digits)
    return seq if seq < 2**63 else None
