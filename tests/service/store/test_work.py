"""Units of work: a change and its audit row together or not at all."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

import pytest
from sqlalchemy import delete, func, select

from analytics.model.org_envelopes import OrgCreated, SignedOut
from analytics.storage.journal_batches import EncodedBatch, decode_batches, encode_days
from service.core.settings import Settings
from service.orgs.organisations import create_org
from service.store.journal import (
    JournalSize,
    append,
    count_journal,
    list_batches,
    remove_batches,
    take_seq,
)
from service.store.organisations import find_org
from service.store.store import SyncUnitOfWork
from service.store.tables import Counter, JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.crashes import PowerCut, at, power_cut
from tests.service.store.conftest import add_org, database


@pytest.fixture
def settings(tmp_path) -> Settings:
    """Waits for the database as long as a service: transactions queue here."""
    return settings_over(tmp_path)


async def events(store, org) -> list[str]:
    """The events of the organisation's journal rows, in order."""
    async with store.read() as session:
        rows = decode_batches(await list_batches(session, org.id))
    return rows.column("event").to_pylist()


async def counts(store) -> tuple[int, int]:
    """Journal batches, and the last seq given out."""
    async with store.read() as session:
        return (
            await session.scalar(select(func.count()).select_from(JournalEntry)),
            await session.scalar(select(Counter.value)),
        )


async def test_without_its_counter_a_database_takes_no_rows(store):
    async with store.write() as work:
        await work.session.execute(delete(Counter))
        with pytest.raises(LookupError, match="run `countersign init`"):
            await take_seq(work.session, 1, START)


async def test_a_change_and_its_row_commit_together(store):
    acme = await add_org(store, "acme")

    assert await events(store, acme) == ["org_created"]
    assert await counts(store) == (1, 1)


@pytest.mark.parametrize("failure", [RuntimeError, PowerCut, asyncio.CancelledError])
async def test_neither_is_there_when_the_block_fails(store, failure):
    """Whatever raises: our own code, the client leaving, the end of the process."""

    async def fail() -> None:
        async with store.write() as work:
            await create_org(work, "acme", "org", BY_OPERATOR)
            raise failure

    with pytest.raises(failure):
        await fail()

    async with store.read() as session:
        assert await find_org(session, "acme") is None
    assert await counts(store) == (0, 0)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO organisations", "UPDATE counters", "INSERT INTO journal", "COMMIT"]
)
async def test_neither_is_there_when_the_power_goes_at_any_statement(store, statement):
    with power_cut(store, at(statement)), pytest.raises(PowerCut):
        await add_org(store, "acme")

    async with store.read() as session:
        assert await find_org(session, "acme") is None
    assert await counts(store) == (0, 0)
    assert await events(store, await add_org(store, "acme")) == ["org_created"]


async def test_a_row_that_cannot_be_written_takes_its_change_with_it(store):
    async def fail() -> None:
        async with store.write() as work:
            await create_org(work, "acme", "org", BY_OPERATOR)
            work.record("org_missing", OrgCreated(slug="x", tier="org"), BY_OPERATOR)

    with pytest.raises(Exception, match=r"(?i)foreign key"):
        await fail()

    async with store.read() as session:
        assert await find_org(session, "acme") is None


async def test_all_rows_of_one_work_have_its_instant(store, clock):
    """Read once the write lock is held, so that instants follow commit order."""
    acme = await add_org(store, "acme")
    async with store.write() as work:
        work.record(acme.id, SignedOut(member_id="m", session_id="s"), BY_OPERATOR)
        clock.advance(seconds=5)
        work.record(acme.id, SignedOut(member_id="m", session_id="s"), BY_OPERATOR)

    async with store.read() as session:
        rows = decode_batches(await list_batches(session, acme.id)).to_pylist()

    assert {row["created_at"] for row in rows} == {START}
    assert {row["received_at"] for row in rows} == {START}


async def test_rows_are_received_when_they_are_committed(store, clock):
    """Rows that were encoded first may be committed second; their numbers and times agree."""
    acme = await add_org(store, "acme")
    early, late = encode_days([sample_row()]), encode_days([sample_row()])
    for batch in (late, early):
        clock.advance(seconds=1)
        committed = await store.write_at_once(_adding(acme.id, batch))

        async with store.read() as session:
            rows = decode_batches(await list_batches(session, acme.id))
        assert rows.column("received_at")[-1].as_py() == committed == clock()
        kept = await store.snapshot(acme.id)
        assert decode_batches(kept.batches).column("received_at")[-1].as_py() == committed


def _adding(tenant_id: str, batches: list[EncodedBatch]) -> Callable[[SyncUnitOfWork], datetime]:
    def change(work: SyncUnitOfWork) -> datetime:
        work.journal.add_batches(tenant_id, batches)
        return work.now

    return change


async def test_seq_is_given_out_in_commit_order_without_gaps_or_repeats(store):
    """A reader who has seen seq n never sees a smaller one appear later."""
    acme = await add_org(store, "acme")
    committed: list[int] = []

    async def accept(rows: int) -> None:
        async with store.write() as work:
            await append(work.session, acme.id, [sample_row()] * rows, now=work.now)
            committed.append((await store.snapshot(acme.id)).watermark)

    await asyncio.gather(*(accept(1 + n % 3) for n in range(30)))

    async with store.read() as session:
        seqs = decode_batches(await list_batches(session, acme.id)).column("seq").to_pylist()
    assert seqs == list(range(1, len(seqs) + 1))
    assert committed == sorted(committed)


async def test_a_rolled_back_seq_is_given_out_again(store):
    """Otherwise a gap would look like a deleted row."""

    async def fail() -> None:
        async with store.write() as work:
            assert (await take_seq(work.session, 10, work.now)).first_seq == 1
            raise PowerCut

    with pytest.raises(PowerCut):
        await fail()

    async with store.write() as work:
        assert (await take_seq(work.session, 1, work.now)).first_seq == 1


async def test_one_append_over_midnight_makes_one_batch_for_each_day(store):
    """A batch is of one tenant and one UTC day."""
    acme = await add_org(store, "acme")
    days = [START.replace(day=day) for day in (5, 4, 5)]
    async with store.write() as work:
        await append(work.session, acme.id, [sample_row(at) for at in days], now=work.now)

    async with store.read() as session:
        batches = await list_batches(session, acme.id)
        fourth = await list_batches(session, acme.id, START.replace(day=4).date())

    assert [(batch.day.day, batch.rows) for batch in batches] == [(4, 1), (5, 2), (4, 1)]
    assert [batch.first_seq for batch in batches] == [1, 2, 4]
    assert [batch.rows for batch in fourth] == [1, 1]


async def test_a_few_rows_at_a_time_share_a_batch(store):
    acme = await add_org(store, "acme")
    beta = await add_org(store, "beta")
    async with store.read() as session:
        before = len(await list_batches(session, acme.id))

    async with store.write() as work:
        for number in range(5):
            for org in (acme, beta):
                work.journal.add(org.id, [sample_row(created_at=START, package_name=f"p{number}")])

    async with store.read() as session:
        (batch,) = (await list_batches(session, acme.id))[before:]
    rows = decode_batches([batch])
    assert rows.column("package_name").to_pylist() == [f"p{number}" for number in range(5)]


async def test_what_waits_counts_what_this_transaction_adds(store):
    """The journal's bound holds for all changes of a group together."""
    acme = await add_org(store, "acme")
    beta = await add_org(store, "beta")
    few, many = [sample_row(created_at=START)], [sample_row(created_at=START)] * 3

    batches = encode_days(many)

    def added(work: SyncUnitOfWork) -> None:
        before = work.journal.count(work.transaction, acme.id)
        work.journal.add(acme.id, few)
        work.journal.add_batches(acme.id, batches)
        work.journal.add(beta.id, few)
        after = work.journal.count(work.transaction, acme.id)
        assert after.rows == before.rows + 4
        assert after.batches == before.batches + 1
        assert after.bytes == before.bytes + batches[0].size

    before = await size_of_journal(store, acme.id)
    await store.write_at_once(added)
    after = await size_of_journal(store, acme.id)
    assert after.rows == before.rows + 4
    assert after.batches == before.batches + 2
    assert after.bytes == before.bytes + batches[0].size + encode_days(few)[0].size


async def size_of_journal(store, tenant_id: str) -> JournalSize:
    """As another connection counts it."""
    return await store.read_at_once(partial(count_journal, tenant_id=tenant_id))


def count_and_add(tenant_id: str, count: int):
    """A change that comes to the journal's size before its own `count` rows."""

    def change(work: SyncUnitOfWork) -> JournalSize:
        size = work.journal.count(work.transaction, tenant_id)
        work.journal.add_batches(tenant_id, encode_days([sample_row()] * count))
        work.journal.add(tenant_id, [sample_row()])
        return size

    return change


@pytest.mark.sqlite_only(reason="its connection keeps values; PostgreSQL's counts each time")
async def test_the_journals_size_is_counted_once(store):
    """To count it takes as long as it is; what a transaction adds is known without."""
    acme = await add_org(store, "acme")
    await store.write_at_once(count_and_add(acme.id, 2))
    said: list[str] = []
    async with store._engines.writer.connect() as pooled:
        writer = (await pooled.get_raw_connection()).driver_connection
    await writer.set_trace_callback(said.append)

    for count in (3, 4):
        before = await size_of_journal(store, acme.id)
        assert await store.write_at_once(count_and_add(acme.id, count)) == before

    assert not [statement for statement in said if "sum(journal.rows)" in statement]


async def sealed_by_a_session(store, settings, tenant_id: str) -> None:
    async with store.write() as work:
        await remove_batches(work.session, await list_batches(work.session, tenant_id))


async def sealed_by_another_program(store, settings, tenant_id: str) -> None:
    with database(settings) as other:
        other.execute("DELETE FROM journal WHERE tenant_id = ?", [tenant_id])


async def nothing_for_a_client_that_failed(store, settings, tenant_id: str) -> None:
    def fail(work: SyncUnitOfWork) -> None:
        count_and_add(tenant_id, 5)(work)
        work.journal.write(work.transaction, work.now)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await store.write_at_once(fail)


@pytest.mark.parametrize(
    "change", [sealed_by_a_session, sealed_by_another_program, nothing_for_a_client_that_failed]
)
async def test_the_journals_size_is_counted_again_when_anything_else_changed(
    store, settings, change
):
    """Otherwise a journal would be full permanently, or never."""
    acme = await add_org(store, "acme")
    for _ in range(2):
        await store.write_at_once(count_and_add(acme.id, 2))

    await change(store, settings, acme.id)

    before = await size_of_journal(store, acme.id)
    assert await store.write_at_once(count_and_add(acme.id, 2)) == before
