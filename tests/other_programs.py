"""Another program on the service's database, whichever database that is."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.databases import IS_POSTGRESQL, database_url
from tests.polling import HANG_S


def execute(data_dir: Path, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """The rows of `statement`, in which `?` stand for `values`, committed past the service."""
    if IS_POSTGRESQL:
        with _connection(data_dir) as connection:
            cursor = connection.execute(statement.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(data_dir / "countersign.db")) as connection, connection:
        return connection.execute(statement, values).fetchall()


@contextmanager
def write_lock(data_dir: Path) -> Iterator[Callable[[], object]]:
    """Hold the lock that every writer takes; to call what it gives releases it early."""
    if IS_POSTGRESQL:
        from service.store.postgres.engine import WRITE_LOCK

        with _connection(data_dir) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [WRITE_LOCK])
            yield lambda: connection.execute("SELECT pg_advisory_unlock(%s)", [WRITE_LOCK])
        return
    path = data_dir / "countersign.db"
    with closing(sqlite3.connect(path, timeout=HANG_S, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield holder.rollback


def stored_bytes(data_dir: Path) -> bytes:
    """Everything that the database stores, uncompressed and not encoded."""
    if not IS_POSTGRESQL:
        return b"".join(path.read_bytes() for path in sorted(data_dir.glob("countersign.db*")))
    from psycopg import sql

    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    copied = list[bytes]()
    with _connection(data_dir) as connection:
        for (table,) in connection.execute(tables).fetchall():
            copy = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
            with connection.cursor().copy(copy) as pieces:
                copied += [bytes(piece) for piece in pieces]
    return b"".join(copied)


def _connection(data_dir: Path) -> Any:
    from tests.postgres import postgres_server

    return postgres_server().connect(make_url(database_url(data_dir)).database or "")
