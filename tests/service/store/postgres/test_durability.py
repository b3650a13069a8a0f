"""A commit that is confirmed survives a power loss, or the database is not used at all."""

import pytest
from sqlalchemy import make_url, text

from service.store.postgres.connection import STORAGE_UNSAFE
from service.store.store import Store
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org
from tests.service.store.postgres.conftest import open_engines, open_store


@pytest.mark.parametrize("value", ["off", "local"])
async def test_a_database_that_confirms_too_early_is_refused(
    postgres_url: str, postgres: PostgresServer, value: str
):
    """`off` confirms before the log is on the disk, `local` ignores synchronous standbys."""
    name = make_url(postgres_url).database
    with postgres.connect() as program:
        program.execute(f"ALTER DATABASE {name} SET synchronous_commit = {value}")
    node = open_store(postgres_url)
    for _ in range(2):
        with pytest.raises(STORAGE_UNSAFE) as refusal:
            await add_org(node, "acme")
        assert refusal.value.reason == f"synchronous_commit is {value}: set it to on"
    with pytest.raises(STORAGE_UNSAFE):
        await node.last_seq()
    with postgres.connect() as program:
        program.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    assert await add_org(node, "acme")
    await node.close()


async def test_a_server_that_does_not_sync_is_refused(own_postgres: PostgresServer):
    """Benchmarks turn fsync off; an audit log cannot."""
    url = own_postgres.url(own_postgres.create_database())
    with own_postgres.connect() as program:
        program.execute("ALTER SYSTEM SET fsync = off")
        program.execute("SELECT pg_reload_conf()")
    node = open_store(url)
    with pytest.raises(STORAGE_UNSAFE) as refusal:
        await add_org(node, "acme")
    await node.close()
    with own_postgres.connect() as program:
        program.execute("ALTER SYSTEM SET fsync = on")
        program.execute("SELECT pg_reload_conf()")

    assert refusal.value.reason == "fsync is off: set it to on"
    assert refusal.value.status == 503


async def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer):
    """It could not store all names."""
    with postgres.connect() as program:
        program.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        node = open_store(postgres.url("latin"))
        with pytest.raises(STORAGE_UNSAFE) as refusal:
            await node.ping()
        await node.close()
    finally:
        postgres.drop_database("latin")

    assert "LATIN1" in refusal.value.reason


@pytest.mark.parametrize("kind", ["writer", "reader", "migrator"])
async def test_every_kind_of_connection_says_so_itself(postgres_url: str, kind: str):
    """What is checked is what the session has, whatever its database or role sets."""
    engines = open_engines(postgres_url, wait_s=5.0)
    settings = ("synchronous_commit", "lock_timeout")
    async with getattr(engines, kind).connect() as connection:
        shown = [await connection.scalar(text(f"SHOW {name}")) for name in settings]
    await engines.dispose()

    assert shown == ["on", "4500ms"]


async def test_the_store_says_what_is_wrong_in_the_log_alone(postgres_url: str):
    """Callers learn that it is the set-up, and no names of ours."""
    node: Store = open_store(postgres_url.replace("countersign:", "countersign:wrong"))
    with pytest.raises(Exception, match="storage is unavailable") as refusal:
        await node.ping()
    await node.close()

    assert "password authentication failed" in refusal.value.reason
