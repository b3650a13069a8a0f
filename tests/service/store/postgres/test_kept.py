"""The size of the journal is counted once, and again when any other transaction has committed."""

import asyncio

import pytest
from sqlalchemy import delete

from analytics.storage.journal_batches import encode_days
from service.store.postgres.direct import KeptValues, PostgresTransaction, SnapshotPosition
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import JournalEntry, Organisation
from tests.analytics.samples import sample_row
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org

BATCH = next(iter(encode_days([sample_row()])))


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """The statements that counted the journal."""
    said: list[str] = []
    execute = PostgresTransaction.execute

    def recorded(transaction: PostgresTransaction, sql: str, *values: object):
        if "coalesce(sum(journal.rows)" in sql:
            said.append(sql)
        return execute(transaction, sql, *values)

    monkeypatch.setattr(PostgresTransaction, "execute", recorded)
    return said


async def ingest(node: Store, org: Organisation) -> int:
    """One batch of one row; how many rows the journal had before."""

    def change(work: SyncUnitOfWork) -> int:
        before = work.journal.count(work.transaction, org.id).rows
        work.journal.store(work.transaction, org.id, BATCH, work.now)
        return before

    return await node.write_at_once(change)


async def test_commits_of_this_process_alone_count_once(store: Store, counted):
    org = await add_org(store, "acme")

    assert [await ingest(store, org) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert await asyncio.gather(*(ingest(store, org) for _ in range(3)))
    assert len(counted) <= 2


async def test_another_nodes_commit_is_counted(store: Store, other: Store):
    org = await add_org(store, "acme")

    assert [await ingest(node, org) for node in (store, other) * 3] == [1, 2, 3, 4, 5, 6]


async def test_what_a_session_seals_is_counted(store: Store):
    """A seal deletes batches."""
    org = await add_org(store, "acme")
    await ingest(store, org)
    async with store.write() as work:
        await work.session.execute(delete(JournalEntry))

    assert await ingest(store, org) == 0


async def test_what_was_rolled_back_is_not_handed_on(store: Store):
    """It was true of a commit that did not happen."""
    org = await add_org(store, "acme")
    await ingest(store, org)

    def fail(work: SyncUnitOfWork) -> None:
        work.journal.store(work.transaction, org.id, BATCH, work.now)
        raise ValueError("our own")

    with pytest.raises(ValueError, match="our own"):
        await store.write_at_once(fail)

    assert await ingest(store, org) == 2


async def test_a_program_that_takes_no_lock_is_noticed(
    store: Store, postgres: PostgresServer, postgres_url: str
):
    """Its transaction began before ours and ended after it."""
    org = await add_org(store, "acme")
    await ingest(store, org)
    with postgres.connect(postgres_url.rpartition("/")[2]) as program:
        program.execute("BEGIN")
        program.execute("DELETE FROM journal")
        assert await ingest(store, org) == 2
        program.execute("COMMIT")

    assert await ingest(store, org) == 1


@pytest.mark.parametrize(
    ("left", "found", "is_current"),
    [
        (SnapshotPosition("7:7:", 7), SnapshotPosition("8:8:", 8), True),
        (
            SnapshotPosition("7:7:", 7),
            SnapshotPosition("9:9:", 9),
            False,
        ),  # another one, 8, has committed
        (
            SnapshotPosition("6:6:", 7),
            SnapshotPosition("8:8:", 8),
            False,
        ),  # 6 ran meanwhile, and may have
        (SnapshotPosition("5:7:5", 7), SnapshotPosition("8:8:", 8), False),  # as 5
        (SnapshotPosition("7:7:", 7), SnapshotPosition("8:8:", 9), True),  # 8 runs, and has not
    ],
)
def test_values_are_handed_on_to_the_very_next_snapshot_alone(left, found, is_current):
    """Ids of transactions tell whether there was another."""
    kept = KeptValues()
    kept.leave(left, {"size": 1})

    assert kept.take(found) == ({"size": 1} if is_current else {})
    assert kept.take(found) == {}
