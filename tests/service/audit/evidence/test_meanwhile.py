"""What happens at the same time, or was meant to do harm, changes no history and stops nothing."""

import asyncio
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx2
import msgspec
import pytest
from sqlalchemy import delete, select, update

from analytics.evidence.notes import Checkpoint, Note, parse_consistency
from analytics.model.errors import StoreUnreachable
from service.audit import pruner
from service.audit.evidence import checkpoints as checkpointing
from service.audit.evidence import evidence_api, monitor
from service.audit.evidence.checkpoints import Checkpointer
from service.audit.evidence.continuity import RESTORED, resume, suspend_trees
from service.audit.evidence.witnesses import Cosigner, add_witness
from service.audit.lake import Lake
from service.store.lease import LeaseLost
from service.store.tables import EvidenceCheckpoint, EvidenceTree, JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.evidence.logs import SomeWitness
from tests.polling import HANG_S
from tests.seaweedfs import locking
from tests.service.audit.conftest import start_worker
from tests.service.audit.evidence.proving import answer, checkpoints, prove, refusal, sign
from tests.service.audit.meanwhile import TAKE_OVER, by_hand
from tests.service.audit.pruning import DAY, add_past, always_on, prune, pruned_rows

WITNESS = SomeWitness("w1.example/a")


async def accept(audit, rows: int = 1, **changes) -> None:
    await audit.accept([sample_row(START, version=str(n), **changes) for n in range(rows)])


async def head(audit) -> Checkpoint:
    return Checkpoint.parse(Note.parse((await answer(audit, "/checkpoint"))["note"]).text)


async def unreachable(*_: object, **__: object) -> None:
    raise StoreUnreachable("the object store is not reachable")


async def test_a_pause_for_others_ends(audit, monkeypatch):
    """However long the job waited for a processor."""
    monkeypatch.setattr(checkpointing, "PAUSE_MAX_S", 0.001)
    await accept(audit, 3)

    async with asyncio.timeout(HANG_S):
        assert await audit.services.checkpointer.take_in(pauses=1e12) >= 3


@pytest.mark.parametrize("path", ["/tile/2/100000000000000000", "/tile/100000000/1", "/tile/7/9"])
async def test_a_tile_beyond_the_tree_costs_nothing(audit, path):
    """Its number is only compared: as a shift it would take gigabytes."""
    await accept(audit)
    await sign(audit)
    tracemalloc.start()
    try:
        found = await refusal(audit, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == (404, "Tile not found for this org")
    assert peak < 10_000_000


async def test_a_tree_that_grows_while_it_is_compared_is_no_difference(audit, monkeypatch):
    await accept(audit, 200)
    await sign(audit)
    list_losses, grown = monitor.list_losses, []

    async def before_growth(session, tenant_id):
        if not grown:
            grown.append(tenant_id)
            await accept(audit, 100)
            await sign(audit)
        return await list_losses(session, tenant_id)

    monkeypatch.setattr(monitor, "list_losses", before_growth)
    assert (await audit.services.monitor.compare(audit.world.acme.id)).differences == []
    assert grown


async def test_a_tree_that_grows_meanwhile_is_proved_to_be_consistent(audit, monkeypatch):
    await accept(audit, 20)
    await sign(audit)
    (old,) = await checkpoints(audit)
    open_log = evidence_api.open_log

    async def before_growth(*arguments):
        log = await open_log(*arguments)
        await accept(audit)
        await sign(audit)
        return log

    monkeypatch.setattr(evidence_api, "open_log", before_growth)
    assert (await audit.get("/consistency", old=old.size)).status_code == 200


async def test_a_bucket_that_is_away_is_no_difference(audit, monkeypatch):
    await accept(audit, 600)
    await audit.seal()
    await sign(audit)
    with monkeypatch.context() as away:
        away.setattr(Lake, "run_in_thread", unreachable)
        with pytest.raises(StoreUnreachable):
            await audit.services.monitor.compare_due()
    assert await audit.pages(event="evidence_differs") == []


@pytest.fixture
async def past(audit):
    """Acme on tier free, with signed days that are past it, and a row of now."""
    await always_on(audit, "free")
    await add_past(audit)
    await accept(audit)
    await sign(audit)
    return audit


async def test_no_hash_is_given_up_while_the_bucket_is_away(past, monkeypatch):
    with monkeypatch.context() as away:
        away.setattr(Lake, "run_in_thread", unreachable)
        with pytest.raises(StoreUnreachable):
            await prune(past)
    assert await pruned_rows(past) == []
    await prune(past)
    await prove(past, (await past.pages(event="blocklist_hit"))[0])


async def test_a_tier_raised_meanwhile_is_planned_anew(past, monkeypatch):
    """Fewer days go than were planned, and each with its hashes."""
    await add_past(past, START - 100 * DAY)
    plan = pruner.Pruner._plan

    async def before_change(self, signing, due):
        planned = await plan(self, signing, due)
        await always_on(past, "team")
        return planned

    monkeypatch.setattr(pruner.Pruner, "_plan", before_change)
    (dropped,) = await prune(past)
    (entry,) = await pruned_rows(past)
    assert entry["payload"]["leaf_ranges"] is not None
    assert max(dropped.days) < START.date() - timedelta(days=60)
    await prove(past, (await past.pages(event="blocklist_hit"))[0])


async def test_a_run_waits_for_the_process_that_signs(past, worker):
    is_held = asyncio.Event()

    async def sign_for_a_while() -> None:
        async with worker.checkpointer.lease.hold():
            is_held.set()
            await asyncio.sleep(0.5)

    signing = asyncio.create_task(sign_for_a_while())
    await is_held.wait()
    await prune(past)
    await signing
    assert len(await pruned_rows(past)) == 1


async def test_a_lost_secret_key_does_not_stop_retention(past, clock):
    other = msgspec.structs.replace(past.services.settings, secret_key="x" * 43)
    await accept(past)
    worker = start_worker(other, clock)
    try:
        await worker.pruner.prune(BY_OPERATOR, is_clock_accepted=True)
    finally:
        await worker.close()
    assert len(await pruned_rows(past)) == 1


async def test_a_suspension_meanwhile_stays(audit, monkeypatch):
    await accept(audit)
    await sign(audit)
    await accept(audit)
    read = Checkpointer._read

    async def before_suspension(self, *arguments):
        leaves = await read(self, *arguments)
        async with audit.services.store.write() as work:
            await suspend_trees(work.session, RESTORED)
        return leaves

    monkeypatch.setattr(Checkpointer, "_read", before_suspension)
    with suppress(LeaseLost):
        await sign(audit)
    async with audit.services.store.read() as session:
        tree = await session.get_one(EvidenceTree, audit.world.acme.id)
    assert tree.suspended == RESTORED
    assert len(await checkpoints(audit)) == 1


async def test_a_process_that_ends_begins_no_step_that_pauses(audit):
    """But one that is waited for, such as before rows are pruned."""
    await accept(audit)
    audit.services.checkpointer.stop()
    await audit.services.checkpointer.sign_due()
    assert await checkpoints(audit) == []
    await sign(audit)
    assert len(await checkpoints(audit)) == 1


async def test_a_process_that_ends_gives_up_a_step_that_pauses(audit, monkeypatch):
    """Nothing of it is signed, as its parts have no order. All of a large one takes seconds."""
    await audit.accept([sample_row(START - timedelta(days=days)) for days in range(3)])
    checkpointer, parts, read = audit.services.checkpointer, checkpointing.leaf_parts, []

    def stopped_meanwhile(*arguments):
        for part in parts(*arguments):
            checkpointer.stop()
            read.append(part)
            yield part

    monkeypatch.setattr(checkpointing, "leaf_parts", stopped_meanwhile)
    assert await checkpointer.take_in(pauses=1) == 0
    assert len(read) == 1
    assert await checkpoints(audit) == []
    assert await sign(audit) >= 3


async def test_two_restores_of_one_backup_are_two_logs(audit):
    """Both accept a rollback to the same state: none has a size of the other under its name."""
    await accept(audit)
    await sign(audit)
    acme = audit.world.acme.id
    async with audit.services.store.read() as session:
        tree = await session.get_one(EvidenceTree, acme)
        state = {name: getattr(tree, name) for name in ("size", "last_seq", "tail", "generation")}
    seen = []
    for _ in range(2):
        async with audit.services.store.write() as work:
            for statement in (
                update(EvidenceTree).where(EvidenceTree.tenant_id == acme).values(**state),
                delete(EvidenceCheckpoint).where(
                    EvidenceCheckpoint.tenant_id == acme,
                    EvidenceCheckpoint.last_seq > state["last_seq"],
                ),
                delete(JournalEntry).where(
                    JournalEntry.tenant_id == acme, JournalEntry.first_seq > state["last_seq"]
                ),
            ):
                await work.session.execute(statement)
            await suspend_trees(work.session, RESTORED)
        store = audit.services.store
        await resume(store, BY_OPERATOR, [], is_rollback_accepted=True, tenant_id=acme)
        audit.clock.advance(seconds=3600)
        await sign(audit)
        seen.append(await head(audit))
    assert seen[0].origin != seen[1].origin


async def ask(audit, answering) -> None:
    services = audit.services
    transport = httpx2.MockTransport(answering)
    await Cosigner(services.store, services.lake, audit.clock, transport).cosign_due()


@pytest.fixture
async def witnessed(audit):
    await add_witness(audit.services.store, BY_OPERATOR, str(WITNESS.key), "https://w1.example/")
    await accept(audit)
    await sign(audit)
    return audit


@pytest.mark.parametrize(("count", "at_s"), [(64, 1_795_000_000), (1, 2**63), (1, 0)])
async def test_a_hostile_witness_spoils_no_checkpoint(witnessed, count, at_s):
    """More lines than a note may have, or a time that no calendar has."""

    def hostile(request: httpx2.Request) -> httpx2.Response:
        sent = Note(parse_consistency(request.content.decode()).checkpoint.text, ())
        lines = [WITNESS.cosign(sent, at_s + n).signatures[-1] for n in range(count)]
        return httpx2.Response(200, content="".join(f"{line}\n" for line in lines).encode())

    for _ in range(2):
        await ask(witnessed, hostile)
    note = Note.parse((await answer(witnessed, "/checkpoint"))["note"])
    assert len(note.signatures) == (2 if at_s == 1_795_000_000 else 1)
    compared = await witnessed.services.monitor.compare(witnessed.world.acme.id)
    assert compared.differences == []


async def test_a_witness_that_hangs_is_asked_once_a_round(witnessed):
    await witnessed.accept([sample_row()], witnessed.world.other)
    await sign(witnessed)
    asked = []

    def hang(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        raise httpx2.ConnectTimeout("no answer")

    await ask(witnessed, hang)
    assert len(asked) == 1


class TestInABucket:
    """Of a real server, with object lock."""

    @pytest.fixture
    def settings(self, tmp_path, bucket):
        return locking(bucket).settings(settings_over(tmp_path), object_lock="compliance")

    async def test_all_are_stored_however_many_there_are(self, audit, monkeypatch):
        monkeypatch.setattr(checkpointing, "STORED_MAX", 1)
        audit.clock.now = datetime.now(UTC)
        for org in (audit.world.acme, audit.world.other):
            await audit.accept([sample_row(audit.clock.now)], org)
        while await audit.services.checkpointer.sign_due():
            pass
        async with audit.services.store.read() as session:
            left = select(EvidenceCheckpoint).where(EvidenceCheckpoint.stored_at.is_(None))
            assert [*await session.scalars(left)] == []

    async def test_one_whose_day_is_pruned_is_stored(self, audit):
        """Segments that move to a bucket bring years of checkpoints."""
        await always_on(audit, "free")
        audit.clock.now = datetime.now(UTC) - timedelta(days=40)
        await audit.accept([sample_row(audit.clock.now)])
        await sign(audit)
        audit.clock.now = datetime.now(UTC)
        await audit.services.checkpointer.sign_due()
        assert [signed.stored_at for signed in await checkpoints(audit)] == [audit.clock.now]

    async def test_a_node_that_lost_the_lease_suspends_nothing(self, audit, monkeypatch):
        """Another one has signed and stored the next checkpoint meanwhile."""
        audit.clock.now = datetime.now(UTC)
        await audit.accept([sample_row(audit.clock.now)])
        await audit.services.checkpointer.sign_due()
        take_over = by_hand(audit, TAKE_OVER)

        async def knows_more(self, state) -> bool:
            take_over()
            return True

        monkeypatch.setattr(checkpointing.BucketCheckpoints, "knows_more", knows_more)
        await audit.accept([sample_row(audit.clock.now)])
        with pytest.raises(LeaseLost):
            await audit.services.checkpointer.sign_due()
        async with audit.services.store.read() as session:
            tree = await session.get_one(EvidenceTree, audit.world.acme.id)
        assert tree.suspended is None
