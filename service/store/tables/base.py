"""The base class of all tables."""

from datetime import date, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Date, LargeBinary, MetaData
from sqlalchemy.orm import DeclarativeBase

from service.store.column_types import AnyText, Instant


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
        dict[str, list[str]]: JSON,
    }
