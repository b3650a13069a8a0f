"""What the process of a statement in SQL receives and answers: see `analytics.query.sql_child`."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

SQL_CHARS_MAX: Final = 8 * 1024
ROWS_MAX: Final = 1_000
"""Rows of a result that is no file."""

JSON_BYTES_MAX: Final = 4 * 2**20
FILE_BYTES_MAX: Final = 32 * 2**20
"""What a result may have: on screen, and as a file."""

TOO_LARGE: Final = "too large"


class SqlFormat(StrEnum):
    """What a result is written as."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class StoredRows(msgspec.Struct):
    """A file of rows; what is added to their seq, and when all of them were received if known."""

    path: str
    seq_base: int
    received_at: datetime | None


class SqlJob(msgspec.Struct, kw_only=True):
    """What to run, and over what once that is known. The journal follows, as an Arrow stream."""

    sql: str
    format: SqlFormat
    guarded: str
    """Before these a cell of CSV gets a `'`, where it begins with one: see `CsvSpelling`."""

    rows_max: int | None
    memory_mb: int
    time_max_s: float
    tenant_id: str = ""
    floor: datetime | None = None
    files: list[StoredRows] = []


class SqlOutcome(msgspec.Struct, kw_only=True):
    """What became of it. The rows follow, in the format that was asked for.

    `refused` says what is wrong with the statement, or is TOO_LARGE.
    """

    refused: str | None = None
    columns: list[tuple[str, str]] = []
    rows: int = 0
    is_truncated: bool = False
