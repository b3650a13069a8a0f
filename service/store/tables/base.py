"""The base class of all tables."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Date,
    Dialect,
    Index,
    LargeBinary,
    MetaData,
    String,
)
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute
from sqlalchemy.types import TypeDecorator

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# A noncharacter (Unicode 23.7): for use within a program, and never part of real text.
_MARK: Final = "\ufdd0"
_ENCODED: Final = {"\0": f"{_MARK}0", _MARK: f"{_MARK}1"}
_DECODED: Final = {encoded: plain for plain, encoded in _ENCODED.items()}
_TO_ENCODE: Final = re.compile(f"[\0{_MARK}]")
_TO_DECODE: Final = re.compile(f"{_MARK}[01]")


class AnyText(TypeDecorator[str]):
    """Any text, also with U+0000, which PostgreSQL cannot store: there it is encoded.

    Different texts stay different, so that none matches another one's binding.
    """

    impl = String
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """None where the database stores it as it is."""
        return _encoded if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """None where the database stores it as it is."""
        return _decoded if dialect.name == "postgresql" else None


def _encoded(text: str | None) -> str | None:
    if text is None or ("\0" not in text and _MARK not in text):
        return text
    return _TO_ENCODE.sub(lambda found: _ENCODED[found[0]], text)


def _decoded(text: str | None) -> str | None:
    if text is None or _MARK not in text:
        return text
    return _TO_DECODE.sub(lambda found: _DECODED[found[0]], text)


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime, stored as microseconds since 1970: exact, sortable, portable."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Microseconds since 1970."""
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """The datetime of the stored microseconds."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class Base(DeclarativeBase):
    """Base class of the tables. Names constraints predictably, for migrations."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: AnyText,
        datetime: Instant,
        date: Date,
        int: BigInteger,
        bytes: LargeBinary,
        list[str]: JSON,
        dict[str, int]: JSON,
        dict[str, str]: JSON(none_as_null=True),
        dict[str, dict[str, str]]: JSON(none_as_null=True),
        dict[str, list[str]]: JSON,
    }


def partial_index(
    name: str,
    where: ColumnElement[bool],
    *columns: InstrumentedAttribute[Any],
    unique: bool = False,
) -> None:
    """Add an index of the rows for which a condition holds to the table of `columns`."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)
