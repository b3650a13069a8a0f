"""Proofs of a service's rows, through all that happens to them, for verifiers not written here."""

import base64
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from analytics.evidence.notes import Note, VerifierKey
from service.audit.evidence.continuity import RESTORED, resume, rotate_key, suspend_trees
from tests.analytics.samples import sample_row
from tests.budgets import budget, only_full
from tests.conftest import BY_OPERATOR, START
from tests.evidence.cases import Case, Consistency, Inclusion
from tests.evidence.verifiers import OtherVerifiers
from tests.service.audit.conftest import AuditWorld, audit
from tests.service.audit.evidence.proving import answer, sign
from tests.service.audit.pruning import DAY, always_on, prune
from tests.service.audit.test_import import line, take

__all__ = ["audit"]

pytestmark = [pytest.mark.slow, only_full, pytest.mark.timeout(600)]

ROWS = budget(20, 100)
"""Of which proofs are taken after each step."""


class Life:
    """What happens to the rows of an organisation, and the proofs that were given meanwhile."""

    def __init__(self, audit: AuditWorld, seed: int) -> None:
        self.audit, self.rng = audit, random.Random(seed)
        self.rows: list[Case] = []
        self.growth: list[Case] = []

    async def accept(self) -> None:
        """Batches of two organisations, one behind the other, of the last days."""
        for _ in range(4):
            at = START - self.rng.randrange(5) * DAY
            count = self.rng.choice([1, 2, 30, 300])
            org = self.rng.choice([self.audit.world.acme, self.audit.world.other])
            await self.audit.accept([sample_row(at, version=str(n)) for n in range(count)], org)

    async def seal(self) -> None:
        await self.audit.seal()

    async def merge(self) -> None:
        await self.audit.seal()
        await self.audit.services.compactor.compact_due(everything=True)

    async def bring_in(self) -> None:
        days = [START - n * DAY for n in range(4)]
        lines = [line(self.rng.choice(days), f"{self.rng.random()}") for _ in range(200)]
        await take(self.audit, b"".join(lines))

    async def rotate(self) -> None:
        services = self.audit.services
        await rotate_key(services.store, services.settings.secret_key, BY_OPERATOR)

    async def prune(self) -> None:
        await always_on(self.audit, "free")
        self.audit.clock.advance(seconds=timedelta(days=7).total_seconds())
        assert await prune(self.audit)
        await always_on(self.audit, "team")

    async def restore(self) -> None:
        """An older backup, which is accepted: another log begins."""
        store = self.audit.services.store
        async with store.write() as work:
            await suspend_trees(work.session, RESTORED)
        await resume(store, BY_OPERATOR, (), is_rollback_accepted=True)

    async def prove(self) -> None:
        """Take proofs of some rows, and of what the log has grown by."""
        await sign(self.audit)
        rows = await self.audit.pages(limit=1000)
        for row in self.rng.sample(rows, min(ROWS, len(rows))):
            said = await answer(self.audit, f"/{row['id']}/proof")
            self.rows.append(Inclusion(said["entry"].encode(), said["proof"], said["keys"][0]))

    async def compare(self, notes: dict[int, dict[str, Any]]) -> None:
        """Take proofs of consistency between checkpoints of one log, by their sizes."""
        newest = await answer(self.audit, "/checkpoint")
        notes[newest["size"]] = newest
        keys = [*map(VerifierKey.parse, newest["keys"])]
        for old, new in combinations(sorted(notes), 2):
            texts = notes[old]["note"], notes[new]["note"]
            for key in signers(keys, *texts):
                response = await self.audit.get("/consistency", old=old, new=new)
                said = await response.get_json()
                # What a pruned group had one by one is gone.
                if response.status_code != 410:
                    hashes = [base64.b64decode(each) for each in said["hashes"]]
                    self.growth.append(Consistency(*texts, hashes, str(key)))


def signers(keys: list[VerifierKey], *notes: str) -> Iterator[VerifierKey]:
    """Those of `keys` that signed all of `notes`."""
    yield from (key for key in keys if all(key in Note.parse(n).signers(keys) for n in notes))


@pytest.mark.parametrize("seed", range(budget(1, 3)))
async def test_every_proof_is_accepted_by_others(
    audit: AuditWorld, other_verifiers: OtherVerifiers, seed: int
) -> None:
    life, notes = Life(audit, seed), dict[int, dict[str, Any]]()
    await always_on(audit, "team")
    steps = [life.seal, life.merge, life.bring_in, life.rotate]
    life.rng.shuffle(steps)
    for step in [*steps, life.prune, life.accept, life.restore]:
        await life.accept()
        if step == life.restore:
            notes = {}
        await step()
        await life.prove()
        await life.compare(notes)
    assert len(life.rows) > 6 * ROWS
    assert len(life.growth) > 10
    assert {*other_verifiers.verify([*life.rows, *life.growth])} == {True}

    exchanged = [
        replace(case, entry=other.entry)
        for case, other in zip(life.rows, life.rows[1:], strict=False)
        if isinstance(case, Inclusion) and isinstance(other, Inclusion) and case != other
    ]
    wrong = [case for case in exchanged if case not in life.rows]
    assert {*other_verifiers.verify(wrong)} == {False}
