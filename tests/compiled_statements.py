"""Engines of one process share the SQL that SQLAlchemy compiles.

Each test's world has engines of its own, and each engine would compile again what all of them
execute. The outcome depends on the statement and the kind of database alone.
"""

from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.util import LRUCache

from tests.databases import IS_POSTGRESQL

_STATEMENTS_MAX: Final = 5_000

_statements: LRUCache[Any, Any] = LRUCache(_STATEMENTS_MAX)


def _share(engine: Engine) -> None:
    engine._compiled_cache = _statements


def share_compiled_statements() -> None:
    """From now on compile each statement once for all databases of a kind."""
    dialects: list[Any] = [SQLiteDialect_aiosqlite]
    if IS_POSTGRESQL:
        from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

        dialects.append(PGDialect_asyncpg)
    for dialect in dialects:
        dialect.engine_created = staticmethod(_share)  # SQLAlchemy's hook for new engines
        # The dialect is a part of the key under which a compiled statement is kept.
        dialect.__eq__ = lambda one, other: type(one) is type(other)
        dialect.__hash__ = lambda one: hash(type(one))
