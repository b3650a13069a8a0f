"""A single bit that flips in anything stored is named by `audit check` or `evidence monitor`."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from analytics.storage.segment_metadata import Segment
from service.audit.integrity_check import Check
from service.store.catalog import list_live_segments
from service.store.tables import (
    Base,
    EvidenceCheckpoint,
    EvidenceTile,
    EvidenceTree,
    JournalEntry,
    PrunedLeaves,
)
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import START
from tests.service.audit.evidence.proving import sign
from tests.service.audit.pruning import DAY, always_on, prune

FLIPS = budget(40, 1_000)
"""Of each seed; `make test-all` tries 10,000."""

COLUMNS: dict[str, tuple[type[Base], str]] = {
    "journal batch": (JournalEntry, "data"),
    "hashes of a tile": (EvidenceTile, "hashes"),
    "seqs of a tile": (EvidenceTile, "first_seqs"),
    "pruned groups of a tile": (EvidenceTile, "pruned"),
    "pruned leaves": (PrunedLeaves, "leaves"),
    "tail of a tree": (EvidenceTree, "tail"),
    "root of a checkpoint": (EvidenceCheckpoint, "root"),
    "signatures of a checkpoint": (EvidenceCheckpoint, "signatures"),
}
FILES = {"segment": Segment.path, "index": Segment.index_path}


@dataclass
class Flip:
    """A bit of something stored that is flipped, and flipped back."""

    audit: Any
    rng: random.Random
    place: str = ""

    async def of_file(self, path_of: Callable[[Segment, Path], Path]) -> Callable[[], Any]:
        async with self.audit.services.store.read() as session:
            live = await list_live_segments(session, self.audit.world.acme.id)
        path = path_of(self.rng.choice(live), self.audit.services.settings.audit_dir)
        return self._of_path(path)

    def _of_path(self, path: Path) -> Callable[[], Any]:
        content = path.read_bytes()
        path.write_bytes(self.flipped(content))
        self.place += f" {path.name}"

        async def back() -> None:
            await asyncio.to_thread(path.write_bytes, content)

        return back

    async def of_column(self, table: type[Base], name: str) -> Callable[[], Any]:
        column = getattr(table, name)
        keys = list(table.__table__.primary_key.columns)
        query = select(*keys, column).where(
            table.tenant_id == self.audit.world.acme.id, column.is_not(None)
        )
        async with self.audit.services.store.read() as session:
            rows = [row for row in (await session.execute(query)).all() if row[-1]]
        *key, content = self.rng.choice(sorted(rows))
        where = [column == value for column, value in zip(keys, key, strict=True)]

        async def store(value: object) -> None:
            async with self.audit.services.store.write() as work:
                await work.session.execute(update(table).where(*where).values({name: value}))

        is_text = isinstance(content, str)
        flipped = self.flipped(content.encode() if is_text else content)
        await store(flipped.decode(errors="replace") if is_text else flipped)

        async def back() -> None:
            await store(content)

        return back

    def flipped(self, content: bytes) -> bytes:
        at, bit = self.rng.randrange(len(content)), self.rng.randrange(8)
        self.place += f" byte {at} of {len(content)}, bit {bit}"
        return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


async def found(audit, kind: str) -> list[Any]:
    services = audit.services
    if kind in FILES or kind == "journal batch":
        check = Check(services.store, services.lake, audit.world.acme, lambda done, total: None)
        return (await check.run()).findings
    return (await services.monitor.compare(audit.world.acme.id)).differences


@pytest.mark.parametrize("seed", range(budget(1, 10)))
async def test_every_flipped_bit_is_named(audit, seed):
    await always_on(audit, "free")
    for days_ago, rows in ((20, 600), (19, 5), (0, 900), (1, 300)):
        at = START - days_ago * DAY
        await audit.accept([sample_row(at, version=str(n)) for n in range(rows)])
    await audit.seal()
    await sign(audit)
    await prune(audit)
    await audit.accept([sample_row(START, version=str(n)) for n in range(40)])
    await sign(audit)
    kinds = [*COLUMNS, *FILES]
    for kind in kinds:
        assert await found(audit, kind) == [], kind
    rng = random.Random(seed)
    for number in range(FLIPS):
        kind = kinds[number % len(kinds)]
        flip = Flip(audit, rng, kind)
        back = (
            await flip.of_file(FILES[kind])
            if kind in FILES
            else await flip.of_column(*COLUMNS[kind])
        )
        assert await found(audit, kind), flip.place
        await back()
    for kind in kinds:
        assert await found(audit, kind) == [], kind
