"""Statements that are compiled once, for transactions that go around SQLAlchemy's execution."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect

from service.store.transaction import Statement


class PreparedStatement:
    """A compiled statement: its SQL and the conversions of its parameters and columns."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        binds = [compiled.binds[name] for name in compiled.positiontup or ()]
        types = [column.type.dialect_impl(dialect) for column in statement.exported_columns]
        self.sql = compiled.string
        self._names = [bind.key for bind in binds]
        self._constants = {bind.key: bind.effective_value for bind in binds if not bind.required}
        self._encoders = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
        self._decoders = [kind.result_processor(dialect, None) for kind in types]

    def inputs(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The values of `parameters` in positional order, converted for storage."""
        given = {**self._constants, **parameters}
        return [
            given[name] if encode is None else encode(given[name])
            for name, encode in zip(self._names, self._encoders, strict=True)
        ]

    def outputs(self, rows: list[Any]) -> list[Any]:
        """`rows` converted to Python values."""
        if not any(self._decoders):
            return rows
        return [
            tuple(
                value if decode is None else decode(value)
                for value, decode in zip(row, self._decoders, strict=True)
            )
            for row in rows
        ]
