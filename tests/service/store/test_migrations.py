"""Migrations: they make exactly the tables the code declares, however often they run."""

import asyncio
import json
import threading
from pathlib import Path

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from service.app.bootstrap import prepare
from service.core.clock import utc_now
from service.core.secrets import current_admin_token
from service.core.settings import REPOSITORY
from service.store import migrate as migrating
from service.store.engine_factory import create_engines
from service.store.migrate import (
    FIRST,
    OLDER_DATABASE,
    UNRELEASED_DATABASE,
    check_schema,
    latest_version,
    migrate,
)
from service.store.store import Store
from service.store.tables import Base
from tests.conftest import settings_over
from tests.databases import database_url
from tests.service.store.conftest import database
from tests.service.store.first_schema import make_first_schema


def differences(connection) -> list:
    """What alembic would still change."""
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return compare_metadata(context, Base.metadata)


def schema(settings) -> list[tuple]:
    """Every table and index, as SQLite keeps them."""
    with database(settings) as connection:
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            " ORDER BY type, name"
        ).fetchall()


def facts(settings) -> tuple[list, list]:
    with database(settings) as connection:
        return (
            connection.execute("SELECT name, value FROM counters").fetchall(),
            connection.execute("SELECT version_num FROM alembic_version").fetchall(),
        )


async def test_migrating_an_empty_database_makes_the_declared_tables(engines):
    """Otherwise tests and production would run on different schemas."""
    async with engines.reader.connect() as connection:
        assert await connection.run_sync(differences) == []


def test_each_file_is_named_after_its_migration():
    """A process reads its latest version from the names: to load the files takes alembic."""
    scripts = ScriptDirectory(REPOSITORY / "service" / "store" / "migrations")
    migrations = [(Path(each.path).name[:5], each.revision) for each in scripts.walk_revisions()]

    assert [name for name, _ in migrations] == [f"{revision}_" for _, revision in migrations]
    assert [revision for _, revision in migrations] == sorted(
        (revision for _, revision in migrations), reverse=True
    )
    assert scripts.get_current_head() == latest_version()


def described(connection) -> dict[str, list]:
    """Each table, without the order of its columns."""
    inspector = inspect(connection)
    aspects = (
        inspector.get_columns,
        inspector.get_foreign_keys,
        inspector.get_unique_constraints,
        inspector.get_indexes,
    )
    return {
        table: [
            inspector.get_pk_constraint(table),
            *(sorted(json.dumps(part, default=str) for part in get(table)) for get in aspects),
        ]
        for table in inspector.get_table_names()
    }


async def test_migrations_make_the_declared_tables_of_those_of_the_first_release(engines, tmp_path):
    """An empty database gets the declared tables at once: a column without a migration is told."""
    older = create_engines(
        database_url(tmp_path / "older") or f"sqlite+aiosqlite:///{tmp_path / 'older.db'}", 5.0
    )
    async with older.migration() as connection:
        await connection.run_sync(make_first_schema)
    await migrate(older)
    async with engines.reader.connect() as connection:
        declared = await connection.run_sync(described)
    async with older.reader.connect() as connection:
        migrated = await connection.run_sync(described)
        version = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    await older.dispose()

    assert migrated == declared
    assert version == latest_version()
    assert "revoked_at IS NULL" in repr(declared["bindings"])


async def test_a_start_that_ends_before_it_has_made_all_tables_leaves_none(tmp_path, monkeypatch):
    """A version without its tables, or tables without a version, would be no start for the next."""
    empty = create_engines(
        database_url(tmp_path / "empty") or f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}", 5.0
    )

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    async def tables() -> list[str]:
        async with empty.reader.connect() as connection:
            return await connection.run_sync(lambda sync: inspect(sync).get_table_names())

    monkeypatch.setattr(migrating, "insert", end)
    with pytest.raises(KeyboardInterrupt):
        await migrate(empty)
    assert await tables() == []
    monkeypatch.undo()
    await migrate(empty)
    assert len(await tables()) == len(Base.metadata.tables) + 1
    await empty.dispose()


@pytest.mark.sqlite_only(reason="compares the text of sqlite_master")
async def test_migrating_again_changes_nothing(engines, settings):
    before = schema(settings), facts(settings)

    await migrate(engines)

    assert (schema(settings), facts(settings)) == before
    assert before[1][0] == [("audit_seq", 0)]


@pytest.mark.parametrize("version", ["0001", "0022"])
async def test_a_database_from_before_the_first_release_is_refused(engines, version):
    """Its rows would be read as what they are not; nothing is changed."""
    async with engines.migration() as connection:
        await connection.execute(
            text("UPDATE alembic_version SET version_num = :v"), {"v": version}
        )

    with pytest.raises(UNRELEASED_DATABASE, match=f"schema {version} is from before"):
        await migrate(engines)

    async with engines.reader.connect() as connection:
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == version


async def test_the_first_schema_is_the_oldest_that_is_opened():
    scripts = ScriptDirectory(REPOSITORY / "service" / "store" / "migrations")

    assert scripts.get_base() == FIRST


async def test_an_empty_database_is_told_from_a_current_one(settings, tmp_path):
    """Commands that do not migrate say what to run first."""
    empty = Store(create_engines(f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}", 5.0), utc_now)
    try:
        with pytest.raises(OLDER_DATABASE, match="countersign init"):
            await check_schema(empty)
    finally:
        await empty.close()


async def test_preparing_again_keeps_what_is_there(settings):
    """A second secret would sign every member out."""
    bare = msgspec.structs.replace(settings, admin_token="", secret_key="")

    first = await prepare(bare)
    second = await prepare(bare)

    assert second == first
    assert len(current_admin_token(first)) > 40
    assert current_admin_token(first) != first.secret_key


def test_workers_that_start_together_prepare_one_data_dir(tmp_path):
    bare = msgspec.structs.replace(settings_over(tmp_path), admin_token="", secret_key="")
    together = threading.Barrier(6)
    ready = []

    def start() -> None:
        together.wait()
        ready.append(asyncio.run(prepare(bare)))

    workers = [threading.Thread(target=start) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(ready) == 6
    assert all(settings == ready[0] for settings in ready)
    assert facts(bare)[0] == [("audit_seq", 0)]
    assert len(facts(bare)[1]) == 1
