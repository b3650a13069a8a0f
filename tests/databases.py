"""The database that tests run on: SQLite in the data dir, or PostgreSQL with DATABASE=postgresql.

On PostgreSQL each data dir has a database of its own on the server of the test process, as it has a
file of its own on SQLite. Tests of what only SQLite has carry the marker `sqlite_only`, with the
reason.
"""

import os
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.core.settings import Settings

DATABASE: Final = os.environ.get("DATABASE") or "sqlite"
IS_POSTGRESQL: Final = DATABASE == "postgresql"
SHORT_WAIT_S: Final = 1.0 if IS_POSTGRESQL else 0.2
"""How long a service waits for a database that a test locks. PostgreSQL's must suffice for a new
connection on a busy machine."""

if DATABASE not in {"sqlite", "postgresql"}:
    raise pytest.UsageError(f"DATABASE is sqlite or postgresql, not {DATABASE}")

if IS_POSTGRESQL:
    from service.store.postgres.direct import PostgresTransaction

    DirectTransaction = PostgresTransaction
else:
    from service.store.sqlite.connection import SqliteTransaction

    DirectTransaction = SqliteTransaction

_names: dict[Path, str] = {}
"""The databases of data dirs, in the order in which they were made."""

_lasting: set[Path] = set()


def database_url(data_dir: Path) -> str:
    """COUNTERSIGN_DATABASE_URL for a service over `data_dir`; empty on SQLite.

    The first time it makes an empty database, which is dropped after the test or the module.
    """
    if not IS_POSTGRESQL:
        return ""
    from tests.postgres import EMPTY, postgres_server

    server = postgres_server()
    if data_dir not in _names:
        _names[data_dir] = server.create_database(EMPTY)
    return server.url(_names[data_dir])


def fill_database(
    data_dir: Path, template: str, fill: Callable[[str], Coroutine[Any, Any, None]]
) -> None:
    """Make the PostgreSQL database of `data_dir` what `fill(url)` makes of an empty one.

    `fill` is called the first time only, for all data dirs with the same `template`.
    """
    from tests.postgres import postgres_server

    server = postgres_server()
    server.keep_template(template, fill)
    database_url(data_dir)
    server.replace_database(_names[data_dir], template)


def copy_data_dir(source: Path, target: Path) -> None:
    """Copy a data dir that no service uses, with its database."""
    shutil.copytree(source, target)
    if IS_POSTGRESQL:
        from tests.postgres import postgres_server

        database_url(target)
        postgres_server().replace_database(_names[target], _names[source])


def elsewhere(settings: Settings, data_dir: Path) -> Settings:
    """`settings` over another data dir, with a database of its own."""
    url = database_url(data_dir)
    return msgspec.structs.replace(settings, data_dir=data_dir, database_url=url)


def keep_until_the_end(data_dir: Path) -> Path:
    """Do not drop the database of `data_dir` before the last test: a session's fixture has it."""
    _lasting.add(data_dir)
    return data_dir


def _dropping() -> Iterator[None]:
    """Drop the databases that are made from now on, at the end."""
    before = len(_names)
    yield
    for data_dir in [*_names][before:]:
        if data_dir not in _lasting:
            from tests.postgres import postgres_server

            postgres_server().drop_database(_names.pop(data_dir))


if IS_POSTGRESQL:
    # The first of its scope to begin is the last to end: by then no service uses them.
    drop_databases_of_test = pytest.fixture(autouse=True)(_dropping)
    drop_databases_of_module = pytest.fixture(autouse=True, scope="module")(_dropping)


def mark_skipped(items: list[pytest.Item]) -> None:
    """On PostgreSQL, skip what is about SQLite itself."""
    for item in items:
        mark = item.get_closest_marker("sqlite_only")
        if mark is not None and IS_POSTGRESQL:
            item.add_marker(pytest.mark.skip(reason=f"SQLite only: {mark.kwargs['reason']}"))
