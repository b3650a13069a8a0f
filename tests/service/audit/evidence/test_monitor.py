"""The monitor names what is not as it was signed, and says nothing of what is."""

import re

import pytest
from sqlalchemy import delete, select, update

from analytics.evidence.notes import Checkpoint, Note
from service.audit.evidence.keys import derive
from service.audit.evidence.prover import note_of
from service.store.tables import (
    EvidenceCheckpoint,
    EvidenceDayKey,
    EvidenceTile,
    EvidenceTree,
    JournalEntry,
)
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.evidence.proving import checkpoints, sign
from tests.service.audit.pruning import DAY, add_past, always_on, prune


async def compare(audit, *held: Note) -> list[str]:
    comparison = await audit.services.monitor.compare(audit.world.acme.id, held)
    return comparison.differences


async def change(audit, statement) -> None:
    async with audit.services.store.write() as work:
        await work.session.execute(statement)


@pytest.fixture
async def signed(audit):
    """Acme with 700 rows of three days in segments, 10 in the journal, and two checkpoints."""
    for n in range(7):
        at = START - n % 3 * DAY
        await audit.accept([sample_row(at, version=f"{n}.{k}") for k in range(100)])
    await audit.seal()
    await sign(audit)
    for n in range(10):
        await audit.accept([sample_row(START, version=str(n))])
    await sign(audit)
    return audit


async def test_what_is_as_it_was_signed_is_compared_and_nothing_said(signed):
    done = await signed.services.monitor.compare(signed.world.acme.id)
    assert done.differences == []
    assert (done.checkpoints, done.rows) == (2, done.size)
    assert done.size > 710


async def test_pruned_rows_are_no_difference(audit):
    await always_on(audit, "free")
    await add_past(audit)
    await audit.accept([sample_row(START, version=str(n)) for n in range(600)])
    await sign(audit)
    await prune(audit)
    assert await compare(audit) == []


async def test_a_row_that_is_gone_is_named_by_its_neighbours(signed):
    async with signed.services.store.read() as session:
        seq = await session.scalar(select(JournalEntry.first_seq).limit(1))
    await change(signed, delete(JournalEntry).where(JournalEntry.first_seq == seq))
    (said,) = await compare(signed)
    assert "are stored" in said
    assert said.startswith("rows aud_")


async def test_a_row_that_is_added_is_named(signed):
    """Rows of another organisation, for one, whose seqs are between those of one's own."""
    await signed.accept([sample_row(START)], signed.world.other)
    await signed.accept([sample_row(START)])
    await sign(signed)
    assert await compare(signed) == []
    await change(
        signed,
        update(JournalEntry)
        .where(JournalEntry.tenant_id == signed.world.other.id, JournalEntry.first_seq > 100)
        .values(tenant_id=signed.world.acme.id),
    )
    (said,) = await compare(signed)
    assert "are stored" in said


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (update(EvidenceDayKey).values(key=bytes(32)), "one of them is not as it was signed"),
        (delete(EvidenceDayKey), "which is pruned, are still stored"),
        (update(EvidenceTree).values(tail=bytes(32)), "one of them is not as it was signed"),
        (
            update(EvidenceTree).values(size=EvidenceTree.size - 1),
            "not that of its last checkpoint",
        ),
        (
            update(EvidenceTile).values(hashes=bytes(64)),
            "one of them is not as it was signed",
        ),
        (update(EvidenceTile).values(first_seqs=b"x"), "the stored seqs of groups are damaged"),
        (
            update(EvidenceCheckpoint).values(root=bytes(32)),
            "is wrong",
        ),
        (
            update(EvidenceCheckpoint).values(last_seq=EvidenceCheckpoint.last_seq - 1),
            "another root or end than its rows",
        ),
        (
            update(EvidenceCheckpoint).values(signatures="— x AAAAAAAA\n"),
            "none of the known keys signed it",
        ),
        (update(EvidenceCheckpoint).values(signatures="x"), "is damaged"),
    ],
)
async def test_what_is_changed_in_the_database_is_named(signed, statement, said):
    await change(signed, statement)
    differences = await compare(signed)
    assert any(said in each for each in differences), differences


async def test_a_checkpoint_of_a_size_that_never_was_is_named(signed):
    (first, _) = await checkpoints(signed)
    await change(
        signed,
        update(EvidenceCheckpoint)
        .where(EvidenceCheckpoint.size == first.size)
        .values(size=first.size + 2**30),
    )
    assert "2 checkpoints are stored, 1 of sizes it had" in await compare(signed)


async def test_a_checkpoint_that_is_kept_elsewhere_is_compared(signed):
    async with signed.services.store.read() as session:
        tree = await session.get_one(EvidenceTree, signed.world.acme.id)
    first, last = await checkpoints(signed)
    held = Note.parse(note_of(tree.origin, first))
    assert await compare(signed, held) == []
    key = derive(signed.services.settings.secret_key, last.key_id)

    def signed_note(checkpoint: Checkpoint) -> Note:
        return Note(checkpoint.text, (key.line(tree.origin, checkpoint.text),))

    other = signed_note(Checkpoint(tree.origin, first.size, bytes(32)))
    (said,) = await compare(signed, other)
    assert said.startswith(
        f"the checkpoint of size {first.size} that is kept elsewhere has another"
    )
    larger = signed_note(Checkpoint(tree.origin, last.size + 1, last.root))
    (said,) = await compare(signed, larger)
    assert said.endswith("has more rows than this log: some were removed")
    forged = Note(held.text, other.signatures)
    (said,) = await compare(signed, forged)
    assert "is wrong" in said


async def test_a_damaged_segment_is_named(signed):
    folder = signed.services.settings.audit_dir / f"tenant={signed.world.acme.id}"
    (path, *_) = folder.glob("day=*/*.parquet")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    differences = await compare(signed)
    assert any(path.stem in each for each in differences), differences


async def test_differences_are_a_row_and_the_log_is_due_again_after_the_interval(signed):
    monitor = signed.services.monitor
    while await monitor.compare_due():
        assert await signed.pages(event="evidence_differs") == []
    await change(signed, update(EvidenceCheckpoint).values(root=bytes(32)))
    signed.clock.advance(seconds=signed.services.settings.scrub_interval_s + 1)
    while await monitor.compare_due():
        pass
    (row,) = await signed.pages(event="evidence_differs")
    assert row["payload"]["count"] >= 2
    assert row["actor"] == "system:maintenance"
    exposed = signed.services.metrics.exposition().decode()
    (found,) = re.findall(r"^countersign_evidence_differences (\S+)$", exposed, re.MULTILINE)
    assert float(found) >= row["payload"]["count"]
