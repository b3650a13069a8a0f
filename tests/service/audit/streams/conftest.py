"""What tests of streams share: a service that may send to this machine, and waits in no time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from service.core.settings import Settings
from tests.conftest import SettableClock, World, running_world
from tests.service.audit.conftest import AuditWorld

LOCAL = ("127.0.0.0/8",)


class Streams(AuditWorld):
    """An audit world, and its streams."""

    async def call(self, method: str, path: str = "", slug: str = "acme", **body: Any) -> Any:
        """The answer of the API to an admin's request about streams, as JSON."""
        response = await self.send(method, path, slug, **body)
        assert response.status_code in {200, 201}, await response.get_data(as_text=True)
        return await response.get_json()

    async def send(self, method: str, path: str = "", slug: str = "acme", **body: Any) -> Any:
        return await self.world.client.open(
            f"/api/v1/admin/orgs/{slug}/streams{path}",
            method=method,
            headers=self.world.admin,
            json=body or None,
        )

    async def create(self, url: str, **given: Any) -> str:
        """The id of a new stream of all rows from the start, unless others are asked for."""
        body = {"name": f"to {url}"[:100], "kind": "webhook", "url": url, "after": "start"}
        return str((await self.call("POST", **{**body, **given}))["id"])


def in_no_time(world: World) -> None:
    """Have streams wait by the test's clock, which moves on as if the time had passed."""

    async def wait(seconds: float) -> None:
        world.clock.advance(seconds=seconds)
        await asyncio.sleep(0)

    world.services.deliveries.wait = wait
    world.services.deliveries.waited_s = lambda: 0.0


@pytest.fixture(autouse=True)
def lease_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service tries to take the lease every ten seconds only: here each round does."""
    monkeypatch.setattr("service.audit.streams.delivery._TAKE_S", 0.0)


@pytest.fixture
async def streams(settings: Settings, clock: SettableClock) -> AsyncIterator[Streams]:
    domains = ("acme.example",)
    allowed = msgspec.structs.replace(settings, stream_networks=LOCAL, mail_domains=domains)
    async with running_world(allowed, clock, has_sealer=False) as world:
        in_no_time(world)
        yield Streams(world)
