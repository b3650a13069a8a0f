"""A SQLite database with rows in every table."""

import json
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Date, LargeBinary, Table, create_engine
from sqlalchemy import insert as insert_into

from service.app.bootstrap import prepare
from service.core.settings import Settings
from service.store.sqlite.files import file_of
from service.store.tables import Base, Counter, Fact
from service.store.tables.base import Instant
from tests.conftest import SettableClock
from tests.issuers.issuer import START

ROWS = 2
MANY = 2_300
"""Rows of the tables that take several batches."""

LARGE = {"rejected_subjects", "advisories"}
KEPT = {Counter.__tablename__, Fact.__tablename__}
"""Tables that have rows from the beginning."""


async def filled_source(settings: Settings) -> Path:
    """The database of a new data dir, with rows in every table; some in several batches."""
    await prepare(settings, SettableClock())
    file = file_of(settings.database)
    engine = create_engine(f"sqlite:///{file}")
    try:
        with closing(engine.connect()) as connection, connection.begin():
            for table in Base.metadata.sorted_tables:
                if table.name not in KEPT:
                    connection.execute(insert_into(table), rows_of(table))
    finally:
        engine.dispose()
    return file


def rows_of(table: Table) -> list[dict[str, Any]]:
    """New rows for `table`, all different, which refer to rows of other tables made likewise."""
    count = MANY if table.name in LARGE else ROWS
    return [{column.name: _value(column, row) for column in table.columns} for row in range(count)]


def _value(column: Column[Any], row: int) -> Any:
    if column.foreign_keys:
        (key,) = column.foreign_keys
        return _value(key.column, row % ROWS)
    if column.nullable and row % 2:
        return None
    made: dict[type, Any] = {
        Instant: START + timedelta(microseconds=row * 1_000_003),
        BigInteger: 2**40 + row,
        Boolean: row % 2 == 0,
        Date: date(2026, 1, 1) + timedelta(days=row % 28),
        LargeBinary: bytes(range(256)) + str(row).encode(),
        JSON: json.loads('{"b": ["ü", "2"], "a": []}'),
    }
    if column.name == "tier":
        return "org"
    # Upper case sorts before lower case in SQLite, and differently in other databases.
    text = f"{'aBéZ'[row % 4]}{row}-{column.name}\n'\"\\"
    length = getattr(column.type, "length", None)
    return made.get(type(column.type), text[:length])
