"""What audit tests share: a service that seals only when told to, and rows to fill it with."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from analytics.imports.segment_buffer import SegmentBuffer
from analytics.model.rows import AuditRow
from service.app.composition import Services, build_services
from service.core.settings import Settings
from service.store.journal import append
from service.store.tables import Organisation
from tests.conftest import SettableClock, World, running_world


@dataclass
class AuditWorld:
    """A World without a background sealer, and what audit tests do to it."""

    world: World

    @property
    def services(self) -> Services:
        return self.world.services

    @property
    def clock(self) -> SettableClock:
        return self.world.clock

    async def accept(self, rows: Sequence[AuditRow], org: Organisation | None = None) -> None:
        """Journal `rows` in one commit."""
        async with self.services.store.write() as work:
            tenant_id = (org or self.world.acme).id
            await append(work.session, tenant_id, rows, now=work.now)

    async def seal(self) -> int:
        """Seal all there is; how many segments came of it."""
        return len(await self.services.sealer.seal_due(everything=True))

    async def get(self, path: str = "", slug: str = "acme", **query: Any) -> Any:
        return await self.world.client.get(
            f"/api/v1/admin/orgs/{slug}/audit{path}",
            headers=self.world.admin,
            query_string=query or None,
        )

    async def page(self, **query: Any) -> dict[str, Any]:
        response = await self.get(**query)
        assert response.status_code == 200, await response.get_data(as_text=True)
        return await response.get_json()

    async def pages(self, **query: Any) -> list[dict[str, Any]]:
        """The entries of all pages, from the first (or the one behind `cursor`) to the last."""
        entries: list[dict[str, Any]] = []
        while True:
            page = await self.page(**query)
            entries += page["entries"]
            if page["next_cursor"] is None:
                return entries
            query["cursor"] = page["next_cursor"]

    async def export(self, headers: dict[str, str] | None = None, **query: Any) -> Any:
        """GET the export, with the admin token unless `headers` say otherwise."""
        return await self.world.client.get(
            "/admin/ui/orgs/acme/audit/export",
            headers=headers or self.world.admin,
            query_string=query,
        )


@pytest.fixture
async def audit(settings: Settings, clock: SettableClock) -> AsyncIterator[AuditWorld]:
    async with running_world(settings, clock, has_sealer=False) as world:
        yield AuditWorld(world)


@pytest.fixture
def in_pieces(monkeypatch):
    """A file is read row by row, and each row written at once: an import of many steps."""
    monkeypatch.setattr("analytics.imports.chunks.CHUNK_ROWS", 1)
    monkeypatch.setattr("service.audit.importer.SegmentBuffer", partial(SegmentBuffer, bytes_max=0))


def start_worker(settings: Settings, clock: SettableClock) -> Services:
    """What a second process would build over the same data dir; its caller closes it."""
    return build_services(settings, clock)


@pytest.fixture
async def worker(audit: AuditWorld, clock: SettableClock) -> AsyncIterator[Services]:
    started = start_worker(audit.services.settings, clock)
    yield started
    await started.close()
