"""Transactions in one trip: what a session does statement by statement, and with its promises."""

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime

import pytest
from sqlalchemy import bindparam, insert, select, update

from service.store.journal import list_batches
from service.store.organisations import get_org, read_org
from service.store.sqlite.connection import SqliteConnection
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import ImportedFile, JournalEntry, Organisation
from service.store.transaction import Transaction
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.crashes import PowerCut, at, power_cut
from tests.polling import HANG_S
from tests.service.store.conftest import add_org, database

ORG = Organisation.__table__
CHANGE = (
    update(ORG)
    .where(ORG.c.slug == "acme")
    .values(role_overrides=bindparam("overrides"), held_since=bindparam("since"))
    .returning(ORG.c.role_overrides, ORG.c.held_since, ORG.c.held_reason)
)
BATCHES = select(JournalEntry.day, JournalEntry.received_at, JournalEntry.data)
IMPORT = insert(ImportedFile.__table__)


async def test_values_come_back_as_they_were(store):
    acme = await add_org(store, "acme")
    overrides, since = {"auditor": ["oidc:r"]}, datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

    def change(work: SyncUnitOfWork) -> list[tuple[object, ...]]:
        values = {"overrides": overrides, "since": since}
        return [tuple(row) for row in work.transaction.rows(CHANGE, values)]

    assert await store.write_at_once(change) == [(overrides, since, None)]
    async with store.read() as session:
        seen = await get_org(session, "acme")
        (batch,) = await list_batches(session, acme.id)
    assert (seen.role_overrides, seen.held_since) == (overrides, since)
    rows = await store.read_at_once(lambda transaction: transaction.rows(BATCHES, {}))
    assert [tuple(row) for row in rows] == [(START.date(), START, batch.data)]


async def test_an_organisation_is_the_same_record_either_way(store):
    await add_org(store, "acme")

    def read(transaction: Transaction) -> Organisation:
        return read_org(transaction, "acme")

    record = await store.read_at_once(read)
    async with store.read() as session:
        org = await get_org(session, "acme")

    names = ORG.columns.keys()
    assert [getattr(record, name) for name in names] == [getattr(org, name) for name in names]


async def test_a_value_that_is_missing_is_no_null(store):
    """A statement that is not given what it names must not go on without it."""
    await add_org(store, "acme")

    with pytest.raises(Exception, match="since"):
        await store.write_at_once(lambda work: work.transaction.rows(CHANGE, {"overrides": {}}))

    async with store.read() as session:
        assert (await get_org(session, "acme")).role_overrides == {}


async def test_a_reference_to_nothing_is_refused(store):
    line = {
        "tenant_id": "org_missing",
        "sha256": "0",
        "name": "n",
        "rows": 1,
        "refused": 0,
        "imported_at": START,
    }

    with pytest.raises(Exception, match=r"(?i)foreign key"):
        await store.write_at_once(lambda work: work.transaction.run(IMPORT, [line]))


async def journal_rows(store: Store, tenant_id: str) -> int:
    async with store.read() as session:
        return sum(batch.rows for batch in await list_batches(session, tenant_id))


@pytest.mark.parametrize(
    "statement", ["UPDATE organisations", "UPDATE counters", "INSERT INTO journal", "COMMIT"]
)
async def test_nothing_is_there_when_the_power_goes_at_any_statement(store, statement):
    acme = await add_org(store, "acme")

    def change(work: SyncUnitOfWork) -> None:
        work.transaction.rows(CHANGE, {"overrides": {"a": []}, "since": None})
        work.journal.add(acme.id, [sample_row()])

    with power_cut(store, at(statement)), pytest.raises(PowerCut):
        await store.write_at_once(change)

    async with store.read() as session:
        assert (await get_org(session, "acme")).role_overrides == {}
    assert await journal_rows(store, acme.id) == 1
    await store.write_at_once(change)
    assert await journal_rows(store, acme.id) == 2


@pytest.mark.sqlite_only(reason="the lock of the file; PostgreSQL's: postgres/test_writer.py")
async def test_a_write_begins_with_the_write_lock(store, settings):
    """Its instant then follows commit order, and no upgrade can fail midway."""

    def change(work: SyncUnitOfWork) -> None:
        with database(settings) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("PRAGMA busy_timeout = 0").execute("BEGIN IMMEDIATE")

    await store.write_at_once(change)


async def test_a_read_sees_one_instant(store, settings):
    await add_org(store, "acme")

    def query(transaction: Transaction) -> tuple[str, str]:
        before = read_org(transaction, "acme").tier
        with database(settings) as other:
            other.execute("UPDATE organisations SET tier = 'team'")
        return before, read_org(transaction, "acme").tier

    assert await store.read_at_once(query) == ("org", "org")


@pytest.mark.sqlite_only(reason="counts switches to the connection's thread")
async def test_all_of_a_transaction_is_one_trip(engines, clock):
    """To go to the thread and back takes longer than most statements."""
    store = Store(engines, clock)
    acme = await add_org(store, "acme")
    trips = []
    kept = SqliteConnection._execute

    async def counted(self, fn, *arguments, **named):
        trips.append(fn)
        return await kept(self, fn, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "_execute", counted)
        await store.write_at_once(lambda work: work.journal.add(acme.id, [sample_row()] * 3))

    assert len(trips) == 1
    assert await journal_rows(store, acme.id) == 4


@pytest.mark.sqlite_only(reason="it runs in the connection's thread")
async def test_a_transaction_goes_on_when_its_client_leaves(engines, clock):
    store = Store(engines, clock)
    acme = await add_org(store, "acme")
    loop, begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def add(work: SyncUnitOfWork) -> None:
        work.journal.add(acme.id, [sample_row()])

    def slow(work: SyncUnitOfWork) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(HANG_S)
        add(work)

    leaving = asyncio.create_task(store.write_at_once(slow))
    await begun.wait()
    leaving.cancel()
    following = asyncio.create_task(store.write_at_once(add))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(leaving, following, return_exceptions=True)

    assert leaving.cancelled()
    assert await journal_rows(store, acme.id) == 3
