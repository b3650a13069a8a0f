"""Connections: durable, strict, and patient only so long."""

import asyncio

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.core.clock import utc_now
from service.core.errors import STORAGE_READ_ONLY, StoreUnavailable
from service.store.engine_factory import create_engines
from service.store.faults import is_outage
from service.store.organisations import find_org
from service.store.store import Store
from service.store.tables import Member
from tests.budgets import only_full
from tests.conftest import START, running_world
from tests.databases import SHORT_WAIT_S
from tests.other_programs import write_lock
from tests.service.store.conftest import add_org, database

PRAGMAS = pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("secure_delete", 1),
        ("busy_timeout", 1000),
    ],
)


@pytest.mark.sqlite_only(reason="pragmas; PostgreSQL's settings: postgres/test_durability.py")
@PRAGMAS
@pytest.mark.parametrize(("name", "size"), [("writer", 1), ("reader", 8)])
async def test_every_pooled_connection_is_durable_and_strict(engines, name, size, pragma, value):
    """A 2xx survives power loss whichever connection the pool hands out: synchronous is FULL."""
    engine = getattr(engines, name)
    assert engine.pool.size() == size
    connections = [await engine.connect() for _ in range(size)]
    try:
        for connection in connections:
            raw = await connection.get_raw_connection()
            cursor = await raw.driver_connection.execute(f"PRAGMA {pragma}")
            assert await cursor.fetchone() == (value,)
            await cursor.close()
    finally:
        for connection in connections:
            await connection.close()


async def test_a_reference_to_nothing_is_refused_by_the_database(store):
    """An invariant that only code keeps is kept until the next bug."""
    member = Member(
        id="mem_1",
        tenant_id="org_missing",
        email="a@b",
        role="owner",
        identity_provider="github",
        created_at=START,
        removed_at=None,
    )

    with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
        await _add(store, member)


async def _add(store, row) -> None:
    async with store.write() as work:
        work.session.add(row)


@pytest.mark.sqlite_only(reason="the lock of the file; PostgreSQL's: postgres/test_writer.py")
async def test_a_write_transaction_begins_with_the_write_lock(store, settings):
    """Its instant then follows commit order, and no upgrade can fail midway."""
    async with store.write():
        with database(settings) as other, pytest.raises(Exception, match="locked"):
            other.execute("PRAGMA busy_timeout = 0").execute("BEGIN IMMEDIATE")


async def test_a_read_transaction_sees_one_instant(store):
    """sqlite3 begins no transaction for a SELECT: the BEGIN is the store's own."""
    await add_org(store, "acme")
    async with store.read() as session:
        assert await find_org(session, "late") is None
        await add_org(store, "late")
        assert await find_org(session, "late") is None
    async with store.read() as session:
        assert await find_org(session, "late") is not None


async def test_readers_are_not_kept_waiting_by_a_writer(store):
    """WAL: a long write is no outage."""
    await add_org(store, "acme")
    async with store.write(), store.read() as session:
        assert await find_org(session, "acme") is not None


async def test_a_locked_database_is_unavailable_and_not_an_error_of_ours(store, settings):
    """Another program holds the write lock: we wait as long as we said, then say 503."""
    with write_lock(settings.data_dir):  # noqa: SIM117 - it is held before
        with pytest.raises(StoreUnavailable):
            await add_org(store, "acme")

    assert StoreUnavailable.status == 503
    assert await add_org(store, "acme")


@only_full
@pytest.mark.sqlite_only(reason="locks the whole file")
async def test_a_database_that_cannot_be_opened_is_unavailable_to_readers_too(store, settings):
    """Exclusive locking mode keeps even new connections from opening it."""
    with database(settings) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE counters SET value = value")
        other.execute("COMMIT")

        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await add_org(store, "acme")

    await store.ping()


@pytest.mark.sqlite_only(reason="PostgreSQL ends the idle writer first")
async def test_more_callers_than_connections_wait_in_turn_and_no_longer_than_said(store):
    """A pool without a limit on waiting would be a service without an answer."""
    async with store.write():
        with pytest.raises(StoreUnavailable):
            await add_org(store, "acme")
    assert await add_org(store, "acme")


async def test_writers_queue_and_all_get_their_turn(store):
    """SQLite has one writer; queueing is fairer than polling its lock."""
    await asyncio.gather(*(add_org(store, f"org-{n}") for n in range(20)))

    async with store.read() as session:
        assert len((await session.execute(text("SELECT slug FROM organisations"))).all()) == 20


@pytest.mark.sqlite_only(reason="damages the file")
async def test_a_damaged_database_is_unavailable(store, settings):
    await add_org(store, "acme")
    await store.close()
    path = settings.data_dir / "countersign.db"
    path.write_bytes(b"not a database" * 1000)

    with pytest.raises(StoreUnavailable):
        await store.ping()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/admin/orgs/acme/oidc-bindings"),
        ("GET", "/admin/ui/orgs/acme/audit/export?format=csv"),
    ],
)
async def test_over_http_a_locked_database_is_a_503(settings, clock, method, path):
    impatient = msgspec.structs.replace(settings, database_wait_s=SHORT_WAIT_S)
    async with running_world(impatient, clock, has_sealer=False) as world:
        with write_lock(settings.data_dir):
            body = {
                "issuer": "https://token.actions.githubusercontent.com",
                "sub_pattern": "repo:acme/payments",
                "repository_id": "1",
                "origin": "org_admin",
            }
            response = await world.client.open(
                path,
                method=method,
                headers=world.admin,
                json=body if method == "POST" else None,
            )
        assert response.status_code == 503
        assert await response.get_json() == {
            "error": "storage is busy: nothing was changed, try again"
        }
        assert await world.bindings() == []


@pytest.mark.sqlite_only(reason="a file; PostgreSQL's outages: postgres/test_outages.py")
async def test_a_file_that_cannot_be_opened_is_no_outage(tmp_path):
    """It is there or it is not: a start that waits for it would never say so."""
    engines = create_engines(f"sqlite+aiosqlite:///{tmp_path}/missing/db", 1.0)
    with pytest.raises(StoreUnavailable) as raised:
        await Store(engines, utc_now).ping()
    await engines.dispose()

    assert not is_outage(raised.value)
    assert not is_outage(STORAGE_READ_ONLY())
