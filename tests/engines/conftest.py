"""A service whose lake is published in both formats."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.conftest import AuditWorld, audit
from tests.service.audit.pruning import always_on, prune
from tests.service.audit.test_import import line, take
from tests.service.lake_table.conftest import DAY, Answers, LakeWorld, settings

__all__ = ["audit", "settings"]


@dataclass
class Lakes:
    """A published lake, through everything that happens to it."""

    audit: AuditWorld

    @property
    def data_dir(self) -> Path:
        return self.audit.services.settings.data_dir

    async def seal(self) -> None:
        """Five weeks of two organisations."""
        for week in range(5):
            at = START - week * 7 * DAY
            events = ["blocklist_hit", "install_allowed", "blocklist_hit"] * 20
            rows = [sample_row(at, event=event) for event in events]
            await self.audit.accept(rows)
            await self.audit.accept(rows[: 10 + week], self.audit.world.other)
        await self.audit.seal()

    async def merge(self) -> None:
        """The segments of a day become one."""
        await self.audit.accept([sample_row(START)] * 7)
        await self.audit.seal()
        self.audit.clock.now += 2 * DAY
        assert await self.audit.services.compactor.compact_due(everything=True)

    async def bring_in(self) -> None:
        """Rows with a history of their own, which count from 0 in their files at first."""
        lines = [line(START - n * DAY, f"i{n}") for n in range(12)]
        assert (await take(self.audit, b"".join(lines))).rows == 12

    async def prune(self) -> None:
        """Acme's older days go."""
        await always_on(self.audit, "free")
        assert await prune(self.audit)

    async def publish(self) -> None:
        await self.audit.services.publisher.publish(["iceberg", "delta"])

    def location(self, format_: str) -> str:
        world = LakeWorld(self.audit, format_)
        return self.audit.services.publisher.places.location(world.key()).removeprefix("file://")

    async def own(self) -> Answers:
        """Countersign's own answers."""
        return await LakeWorld(self.audit, "iceberg").sealed()


@pytest.fixture
def lakes(audit: AuditWorld) -> Lakes:
    return Lakes(audit)
