"""One history is signed: across keys, restores and processes."""

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from analytics.evidence.notes import Checkpoint, Note, VerifierKey
from service.app.background_jobs import signing
from service.audit.evidence.continuity import (
    RESTORED,
    resume,
    rotate_key,
    suspend_trees,
)
from service.audit.evidence.keys import KEY_LOST, derive
from service.audit.evidence.prover import note_of
from service.core.errors import Conflict, Invalid
from service.store.lease import LeaseLost
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR
from tests.service.audit.conftest import start_worker
from tests.service.audit.evidence.proving import answer, checkpoints, prove, refusal, sign
from tests.service.audit.meanwhile import TAKE_OVER, before_transaction, by_hand


async def accept(audit) -> None:
    await audit.accept([sample_row()])


async def note(audit, **query) -> Note:
    return Note.parse((await answer(audit, "/checkpoint", **query))["note"])


async def test_the_first_checkpoint_of_a_new_key_is_signed_by_the_former_too(audit):
    await accept(audit)
    await sign(audit)
    (former,) = (await answer(audit, "/checkpoint"))["keys"]
    public = await rotate_key(audit.services.store, audit.services.settings.secret_key, BY_OPERATOR)
    await sign(audit)
    said = await answer(audit, "/checkpoint")
    new, old = map(VerifierKey.parse, said["keys"])
    assert (str(old), len(said["keys"])) == (former, 2)
    assert Note.parse(said["note"]).signers([new, old]) == [new, old]
    (row,) = await audit.pages(event="evidence_key_rotated")
    assert row["payload"]["key"] == public != row["payload"]["former_key"]
    await prove(audit, row)

    await accept(audit)
    await sign(audit)
    assert (await note(audit)).signers([new, old]) == [new]


async def test_another_secret_key_signs_nothing_until_a_key_is_begun(audit, settings, clock):
    await accept(audit)
    await sign(audit)
    other = msgspec.structs.replace(
        audit.services.settings, secret_key="another secret of 40 characters ........"
    )
    worker = start_worker(other, clock)
    try:
        await accept(audit)
        with pytest.raises(KEY_LOST, match="evidence key rotate"):
            await worker.checkpointer.take_in()
        with capture_logs() as logs:
            rounds = asyncio.create_task(signing(worker).run(stop := asyncio.Event()))
            while "maintenance_failed" not in {line["event"] for line in logs}:
                await worker.store.ping()
            stop.set()
            await rounds
        (line, *_) = (line for line in logs if line["event"] == "maintenance_failed")
        assert line["reason"].endswith("`countersign evidence key rotate`")
        assert "exc_info" not in line
        await rotate_key(worker.store, other.secret_key, BY_OPERATOR)
        assert await worker.checkpointer.take_in() > 0
    finally:
        await worker.close()
    (row, *_) = await audit.pages(event="blocklist_hit")
    await prove(audit, row)


async def resumed(audit, *notes: str, accepted: bool = False):
    return await resume(
        audit.services.store,
        BY_OPERATOR,
        [(each, Checkpoint.parse(each.text)) for each in map(Note.parse, notes)],
        is_rollback_accepted=accepted,
        tenant_id=audit.world.acme.id,
    )


async def suspended(audit) -> None:
    async with audit.services.store.write() as work:
        await suspend_trees(work.session, RESTORED)


async def test_a_restored_log_is_not_signed_until_it_is_resumed(audit):
    await accept(audit)
    await sign(audit)
    kept = str(await note(audit))
    await suspended(audit)
    await accept(audit)
    await audit.services.checkpointer.sign_due()
    exposed = audit.services.metrics.exposition().decode()
    assert "countersign_evidence_suspended 2.0" in exposed
    (newest, *_) = await audit.pages(event="blocklist_hit")
    assert (await refusal(audit, f"/{newest['id']}/proof"))[0] == 409

    with pytest.raises(Conflict, match="give the newest checkpoint"):
        await resumed(audit)
    (again,) = await resumed(audit, kept)
    assert (again.slug, again.name) == ("acme", Checkpoint.parse(Note.parse(kept).text).origin)
    assert await sign(audit) > 0
    await prove(audit, newest)
    (row,) = await audit.pages(event="evidence_resumed")
    assert row["payload"]["held_size"] == Checkpoint.parse(Note.parse(kept).text).size


async def test_a_checkpoint_that_the_restored_log_never_signed_is_a_rollback(audit):
    """An older backup must not give a size a second root."""
    await accept(audit)
    await sign(audit)
    first = await note(audit)
    checkpoint = Checkpoint.parse(first.text)
    (stored,) = await checkpoints(audit)
    key = derive(audit.services.settings.secret_key, stored.key_id)
    await suspended(audit)
    for size, root, said in (
        (checkpoint.size + 5, checkpoint.root, "restore a newer backup"),
        (checkpoint.size - 1, checkpoint.root, "has never signed the checkpoint"),
        (checkpoint.size, bytes(32), "has never signed the checkpoint"),
    ):
        text = Checkpoint(checkpoint.origin, size, root).text
        later = str(Note(text, (key.line(checkpoint.origin, text),)))
        with pytest.raises(Conflict, match=said):
            await resumed(audit, later)
    forged = str(Note(Checkpoint(checkpoint.origin, 3, bytes(32)).text, first.signatures))
    with pytest.raises(Invalid, match="is not this service's"):
        await resumed(audit, forged)
    assert await sign(audit) == 0

    (again,) = await resumed(audit, accepted=True)
    name, _, generation = again.name.rpartition("/")
    assert (name, generation.isdecimal()) == (checkpoint.origin, True)
    (row,) = await audit.pages(event="evidence_resumed")
    assert row["payload"]["rollback_accepted"] is True
    await prove(audit, (await audit.pages(event="blocklist_hit"))[0])
    await sign(audit)
    assert (await answer(audit, "/checkpoint"))["origin"] == again.name
    await prove(audit, row)
    assert (await audit.services.monitor.compare(audit.world.acme.id)).differences == []


async def test_a_process_that_lost_the_lease_signs_nothing(audit):
    """Paused before its commit, it finds that another one signs now."""
    await accept(audit)
    before_transaction(audit, 2, by_hand(audit, TAKE_OVER))
    with pytest.raises(LeaseLost):
        await sign(audit)
    assert await checkpoints(audit) == []


async def test_nodes_that_take_turns_sign_one_history(audit, settings, clock):
    """Three of them, each with what it has read before: no size gets two roots."""
    workers = [start_worker(audit.services.settings, clock) for _ in range(3)]
    seen: dict[int, str] = {}
    try:
        for step in range(9):
            await accept(audit)
            await workers[step % 3].checkpointer.take_in()
            for stored in await checkpoints(audit):
                said = note_of("x", stored)
                assert seen.setdefault(stored.size, said) == said
    finally:
        for worker in workers:
            await worker.close()
    assert len(seen) == 9
    assert (await audit.services.monitor.compare(audit.world.acme.id)).differences == []
