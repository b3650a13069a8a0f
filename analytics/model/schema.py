"""The schema of audit rows in each version, and the names of its columns in the API."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from analytics.model.errors import StoreFault

_INSTANT: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of stored rows.

    `field_id` is its number in Parquet files, which is never reused, even after a column is
    dropped. Rows have the column from schema version `since` on.
    """

    name: str
    field_id: int
    type: pa.DataType = _TEXT
    is_required: bool = False
    since: int = 1

    @property
    def field(self) -> pa.Field:
        """The column as Arrow has it."""
        return pa.field(self.name, self.type, nullable=not self.is_required)


COLUMNS: Final = (
    Column("seq", 1, pa.int64(), is_required=True),
    Column("created_at", 2, _INSTANT, is_required=True),
    Column("received_at", 3, _INSTANT, is_required=True),
    Column("event", 4, is_required=True),
    Column("package_name", 5),
    Column("version", 6),
    Column("decision", 7),
    Column("decision_reason", 8),
    Column("verdict_source", 9, is_required=True),
    Column("actor_tenant_id", 10),
    Column("actor", 11, is_required=True),
    Column("actor_source", 12, is_required=True),
    Column("subject", 13),
    Column("oidc_binding_id", 14),
    Column("request_id", 15),
    Column("source_ip", 16),
    Column("payload", 17),
    Column("ecosystem", 18, since=2),
    Column("repository_id", 19, since=2),
    Column("run_id", 20, since=2),
    Column("token_id", 21, since=2),
    Column("file_name", 22, since=3),
    Column("file_sha256", 23, since=3),
    Column("client", 24, since=3),
)
"""A new version appends nullable columns of text: older rows are read with null there."""

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


WIRE_COLUMNS: Final[dict[str, str]] = {
    "id": "seq",
    "created_at": "created_at",
    "event": "event",
    "packageName": "package_name",
    "version": "version",
    "decision": "decision",
    "decision_reason": "decision_reason",
    "verdict_source": "verdict_source",
    "tenant_id": "",
    "actor_tenant_id": "actor_tenant_id",
    "actor": "actor",
    "actor_source": "actor_source",
    "subject": "subject",
    "oidc_binding_id": "oidc_binding_id",
    "request_id": "request_id",
    "source_ip": "source_ip",
    "received_at": "received_at",
    "payload": "payload",
    "ecosystem": "ecosystem",
    "repository_id": "repository_id",
    "run_id": "run_id",
    "token_id": "token_id",
    "file_name": "file_name",
    "file_sha256": "file_sha256",
    "client": "client",
}
"""Wire name to stored column, in the order of JSON keys and CSV headers.

`tenant_id` is not stored: a reader adds the tenant it asked for.
"""

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
