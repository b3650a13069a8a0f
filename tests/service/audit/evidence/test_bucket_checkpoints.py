"""Checkpoints in a real bucket: a database that was rolled back cannot sign another history."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import delete, update

from analytics.evidence.notes import Note
from analytics.storage.layout import checkpoint_key
from analytics.storage.object_lock import RequestRefused
from service.audit.evidence.checkpoints import ROLLED_BACK
from service.store.tables import EvidenceCheckpoint, EvidenceTree
from tests.analytics.samples import sample_row
from tests.conftest import settings_over
from tests.crashes import PowerCut, at, power_cut
from tests.seaweedfs import locking
from tests.service.audit.evidence.proving import answer, checkpoints
from tests.service.audit.pruning import DAY


@pytest.fixture
def settings(tmp_path, bucket):
    return locking(bucket).settings(settings_over(tmp_path), object_lock="compliance")


async def sign(audit) -> None:
    await audit.services.checkpointer.sign_due()


def key_of(audit, signed) -> str:
    return checkpoint_key(audit.world.acme.id, signed.generation, signed.size)


async def suspended(audit) -> str | None:
    async with audit.services.store.read() as session:
        return (await session.get_one(EvidenceTree, audit.world.acme.id)).suspended


async def test_each_checkpoint_is_an_object_that_cannot_be_deleted(audit):
    audit.clock.now = datetime.now(UTC)
    for _ in range(2):
        await audit.accept([sample_row(audit.clock.now)])
        await sign(audit)
    bucket = audit.services.lake.segments
    signed = await checkpoints(audit)
    assert len(signed) == 2
    for each in signed:
        note = Note.parse(bucket.read_object(key_of(audit, each)).decode())
        said = await answer(audit, "/checkpoint", size=each.size)
        assert str(note) == said["note"]
        assert each.stored_at == audit.clock.now
        ((key, version),) = bucket.locks.versions(key_of(audit, each))
        with pytest.raises(RequestRefused):
            bucket.locks.remove(key, version)
    assert await suspended(audit) is None


async def test_a_kill_behind_the_object_repeats_the_request(audit):
    audit.clock.now = datetime.now(UTC)
    await audit.accept([sample_row(audit.clock.now)])
    with (
        power_cut(audit.services.store, at("UPDATE evidence_checkpoints")),
        pytest.raises(PowerCut),
    ):
        await sign(audit)
    (signed,) = await checkpoints(audit)
    assert signed.stored_at is None
    await sign(audit)
    (signed,) = await checkpoints(audit)
    assert signed.stored_at is not None
    assert await suspended(audit) is None


async def test_a_database_that_was_rolled_back_signs_nothing(audit):
    """By its own means, such as PITR: no command of ours has suspended it."""
    audit.clock.now = datetime.now(UTC)
    await audit.accept([sample_row(audit.clock.now)])
    await sign(audit)
    (first,) = await checkpoints(audit)
    async with audit.services.store.read() as session:
        before = await session.get_one(EvidenceTree, audit.world.acme.id)
        state = {name: getattr(before, name) for name in ("size", "last_seq", "tail")}
    await audit.accept([sample_row(audit.clock.now)])
    await sign(audit)
    async with audit.services.store.write() as work:
        await work.session.execute(
            delete(EvidenceCheckpoint).where(EvidenceCheckpoint.size > first.size)
        )
        await work.session.execute(
            update(EvidenceTree)
            .where(EvidenceTree.tenant_id == audit.world.acme.id)
            .values(**state)
        )

    await audit.accept([sample_row(audit.clock.now)])
    await sign(audit)
    assert await suspended(audit) == ROLLED_BACK
    assert [each.size for each in await checkpoints(audit)] == [first.size]


async def test_another_checkpoint_in_the_place_of_ours_suspends_the_log(audit):
    audit.clock.now = datetime.now(UTC)
    await audit.accept([sample_row(audit.clock.now)])
    await audit.services.checkpointer.take_in()
    (signed,) = await checkpoints(audit)
    bucket = audit.services.lake.segments
    assert bucket.put_locked(key_of(audit, signed), b"another", audit.clock.now + DAY)
    await sign(audit)
    assert await suspended(audit) == ROLLED_BACK
