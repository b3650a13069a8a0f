"""Migrations on PostgreSQL: once, whichever nodes start at once, and to the declared tables."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from service.store.migrate import migrate
from service.store.tables import Base
from tests.postgres import EMPTY, PostgresServer
from tests.service.store.first_schema import make_first_schema
from tests.service.store.postgres.conftest import open_engines

INDEXES = text("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()")


@pytest.fixture
def empty_url(postgres: PostgresServer):
    with postgres.database(EMPTY) as url:
        yield url


async def test_nodes_that_start_at_once_migrate_once(empty_url: str):
    """The others wait for the lock and then find nothing to do."""
    nodes = [open_engines(empty_url, wait_s=20) for _ in range(4)]
    await asyncio.gather(*(migrate(engines) for engines in nodes))
    async with nodes[0].reader.connect() as connection:
        versions = (await connection.execute(text("SELECT version_num FROM alembic_version"))).all()
        counters = (await connection.execute(text("SELECT value FROM counters"))).all()
    for engines in nodes:
        await engines.dispose()

    assert (len(versions), len(counters)) == (1, 1)


async def test_migrating_the_first_schema_makes_the_declared_tables(
    empty_url: str, postgres: PostgresServer
):
    migrated = open_engines(empty_url)
    async with migrated.migration() as connection:
        await connection.run_sync(make_first_schema)
    await migrate(migrated)
    async with migrated.reader.connect() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(sync, opts={"compare_type": True}), Base.metadata
            )
        )
        made = dict(iter(await connection.execute(INDEXES)))
    await migrated.dispose()
    with postgres.database(EMPTY) as url:
        declared = open_engines(url)
        async with declared.migration() as connection:
            await connection.run_sync(Base.metadata.create_all)
            wanted = dict(iter(await connection.execute(INDEXES)))
        await declared.dispose()
    made.pop("alembic_version_pkc")

    assert differences == []
    assert made == wanted
    assert "WHERE (revoked_at IS NULL)" in made["one_active_per_slot"]


async def test_a_migration_may_take_longer_than_a_request(empty_url: str):
    """An index on many rows takes minutes; only its wait for the lock is limited."""
    engines = open_engines(empty_url, wait_s=0.3)
    async with engines.migration() as connection:
        await connection.execute(text("SELECT pg_sleep(0.6)"))
        await asyncio.sleep(0.6)
        done = await connection.scalar(text("SELECT 1"))
    await engines.dispose()

    assert done == 1
