"""Engines of one process share the SQL that SQLAlchemy compiles.

Each test's world has engines of its own, and each engine would compile again what all of them
execute. The outcome depends on the statement and the kind of database alone.
"""

from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite

_statements: Final[dict[Any, Any]] = {}


class _Shared:
    """A dialect is a part of the key under which a compiled statement is kept."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=_statements)


class Sqlite(_Shared, SQLiteDialect_aiosqlite):
    """SQLite, with shared statements."""

    supports_statement_cache = True


class Postgresql(_Shared, PGDialect_asyncpg):
    """PostgreSQL, with shared statements."""

    supports_statement_cache = True


def share_compiled_statements() -> None:
    """From now on compile each statement once for all databases of a kind."""
    registry.register("sqlite.aiosqlite", __name__, Sqlite.__name__)
    registry.register("postgresql.asyncpg", __name__, Postgresql.__name__)
