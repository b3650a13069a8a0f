"""A service whose network is one issuer, and what becomes of the tokens that are sent to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from service.ci.verifier.codes import LOG_EVENT_PREFIX
from service.core.header_names import CI_TOKEN_HEADER
from service.core.settings import Settings
from tests.conftest import (
    SettableClock,
    World,
    running_world,
)
from tests.issuers.issuer import Issuer

TRUSTED = None
"""What a token is rejected for that is not."""


@dataclass
class Gate:
    """The door that tokens come to, in a world where acme trusts one job of `issuer`."""

    world: World
    issuer: Issuer
    logs: list[dict[str, Any]]
    """The log events since it opened."""

    async def send(self, *values: str, slug: str = "acme", **headers: str) -> list[dict[str, Any]]:
        """Send a request with these token headers; the log events of rejections it caused."""
        sent = [(CI_TOKEN_HEADER, value) for value in values]
        sent += list((headers or self.world.admin).items())
        response = await self.world.client.get(
            f"/api/v1/admin/orgs/{slug}/oidc-bindings", headers=sent
        )
        assert response.status_code == 200, await response.get_data(as_text=True)
        request_id = response.headers["x-request-id"]
        return [
            line
            for line in self.logs
            if line["event"].startswith(LOG_EVENT_PREFIX) and line["request_id"] == request_id
        ]

    async def judge(self, *values: str, **more: str) -> tuple[str, str | None] | None:
        """The code and the detail that a request with these headers is rejected with, or None."""
        lines = await self.send(*values, **more)
        if not lines:
            return TRUSTED
        (line,) = lines
        return line["event"].removeprefix(LOG_EVENT_PREFIX), line["detail"]


@asynccontextmanager
async def open_gate(settings: Settings, issuer: Issuer | None = None) -> AsyncIterator[Gate]:
    """A gate over a world of its own, in which acme trusts `issuer`'s usual job."""
    issuer = issuer or Issuer()
    async with running_world(
        settings, SettableClock(), transport=issuer.transport(), has_sealer=False
    ) as world:
        # One capture for all requests: captures of requests that overlap would never be undone.
        with capture_logs(processors=[merge_contextvars]) as logs:
            gate = Gate(world, issuer, logs)
            await world.bind()
            yield gate
