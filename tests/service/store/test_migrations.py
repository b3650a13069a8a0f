"""Migrations: they make exactly the tables the code declares, however often they run."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from service.app.bootstrap import prepare
from service.core.secrets import current_admin_token
from service.core.settings import REPOSITORY
from service.store.migrate import latest_version, migrate
from service.store.tables import Base
from tests.conftest import settings_over
from tests.service.store.conftest import database


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


@pytest.mark.sqlite_only(reason="compares the text of sqlite_master")
async def test_what_alembic_cannot_compare_is_the_same_too(engines, settings, tmp_path):
    """Partial indexes with their conditions, named constraints."""
    declared = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    Base.metadata.create_all(declared)
    with declared.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
    declared.dispose()

    migrated = {(name, sql) for kind, name, sql in schema(settings) if kind == "index" and sql}

    assert migrated == {tuple(row) for row in rows}
    assert any("WHERE revoked_at IS NULL" in sql for _, sql in migrated)


@pytest.mark.sqlite_only(reason="compares the text of sqlite_master")
async def test_migrating_again_changes_nothing(engines, settings):
    """Every start migrates."""
    before = schema(settings), facts(settings)

    await migrate(engines)

    assert (schema(settings), facts(settings)) == before
    assert before[1][0] == [("audit_seq", 0)]


async def test_preparing_again_keeps_what_is_there(settings):
    """Secrets included: a second one would sign every member out."""
    bare = msgspec.structs.replace(settings, admin_token="", secret_key="")

    first = await prepare(bare)
    second = await prepare(bare)

    assert second == first
    assert len(current_admin_token(first)) > 40
    assert current_admin_token(first) != first.secret_key


def test_workers_that_start_together_prepare_one_data_dir(tmp_path):
    """All come up, with the same secrets and one schema."""
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
