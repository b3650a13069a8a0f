"""What store tests share: a prepared database, and a Store over it without any app."""

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from service.app.bootstrap import prepare
from service.core.settings import Settings
from service.orgs.organisations import create_org
from service.store.engine_factory import create_engines
from service.store.sqlite.engine import SqliteEngines
from service.store.sqlite.files import file_of, make_private
from service.store.store import Store
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, SettableClock, settings_over
from tests.databases import IS_POSTGRESQL, fill_database
from tests.other_programs import execute

_prepared: list[bytes] = []
"""The database that `prepare` makes, once a test of this process needed one."""


async def prepare_from_copy(settings: Settings) -> None:
    """Prepare an empty data dir; from the second one on with a copy of the first's database."""
    if IS_POSTGRESQL:
        fill_database(settings.data_dir, "prepared", _prepare_database)
        _make_folders(settings)
        return
    if not _prepared:
        await prepare(settings)
        _prepared.append(file_of(settings.database).read_bytes())
        return
    _make_folders(settings)
    make_private(settings.database)
    file_of(settings.database).write_bytes(_prepared[0])


async def _prepare_database(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await prepare(settings_over(Path(folder), url))


def _make_folders(settings: Settings) -> None:
    for folder in (settings.data_dir, settings.audit_dir, settings.temp_dir):
        folder.mkdir(mode=0o700)


@pytest.fixture
def settings(tmp_path) -> Settings:
    """A database that is not waited for long."""
    return msgspec.structs.replace(settings_over(tmp_path), database_wait_s=1.0)


@pytest.fixture
async def engines(settings: Settings) -> AsyncIterator[SqliteEngines]:
    """Connections to a prepared database."""
    await prepare_from_copy(settings)
    opened = create_engines(settings.database, settings.database_wait_s)
    yield opened
    await opened.dispose()


@pytest.fixture
def store(engines: SqliteEngines, clock: SettableClock) -> Store:
    return Store(engines, clock)


async def add_org(store: Store, slug: str) -> Organisation:
    """A new organisation, with its audit row."""
    async with store.write() as work:
        return await create_org(work, slug, "org", BY_OPERATOR)


class _Executing:
    """A connection of which only `execute` is used."""

    def __init__(self, settings: Settings) -> None:
        self._data_dir = settings.data_dir

    def execute(self, statement: str, values: Sequence[Any] = ()) -> "_Executed":
        return _Executed(execute(self._data_dir, statement, values))


class _Executed(list[Any]):
    def fetchall(self) -> list[Any]:
        return self

    def fetchone(self) -> Any:
        return next(iter(self), None)


@contextmanager
def database(settings: Settings) -> Iterator[sqlite3.Connection]:
    """The database itself, as another program opens it."""
    if IS_POSTGRESQL:
        yield cast("sqlite3.Connection", _Executing(settings))
        return
    path = settings.data_dir / "countersign.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
