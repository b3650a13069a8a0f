"""What tests of statements share: a service that admits packages, and what it states of them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from analytics.evidence.notes import VerifierKey
from service.audit.evidence.keys import list_keys, read_verifier_keys
from service.core.settings import Settings
from service.store.transaction import within
from tests.service.packages.attestations.verifiers import verified
from tests.service.packages.proxy.proxied import Proxied, running_proxy
from tests.service.packages.proxy.registry import FakeRegistry, running_registry

LEFT_PAD = "npm/left-pad/-/left-pad-1.3.0.tgz"


@dataclass
class Attested:
    """The service with its proxy, and its endpoints of statements."""

    proxied: Proxied

    async def install(self, path: str = LEFT_PAD) -> dict[str, Any]:
        """The row of an install of npm's left-pad 1.3.0, or of what is at `path`."""
        self.proxied.publishes_npm("left-pad", "1.3.0")
        assert (await self.proxied.get(path)).status_code == 200
        return (await self.proxied.rows())[-1]

    async def ask(self, path: str, slug: str = "acme", **query: Any) -> Any:
        return await self.proxied.client.get(
            f"/api/v1/admin/orgs/{slug}/installs/{path}",
            headers=self.proxied.world.admin,
            query_string=query or None,
        )

    async def answer(self, path: str, **query: Any) -> Any:
        """What a request answers, which must succeed."""
        response = await self.ask(path, **query)
        assert response.status_code == 200, await response.get_data(as_text=True)
        return await response.get_json()

    async def envelope(self, audit_id: str) -> dict[str, Any]:
        return await self.answer(f"{audit_id}/attestation")

    async def refusal(self, audit_id: str, slug: str = "acme") -> tuple[int, str]:
        response = await self.ask(f"{audit_id}/attestation", slug)
        return response.status_code, (await response.get_json())["error"]

    async def keys(self) -> dict[str, VerifierKey]:
        """The log's keys by id, the newest first."""
        async with self.proxied.world.services.store.read() as session:
            stored = await list_keys(session)
            keys = await within(session, read_verifier_keys, "audit.example/acme")
        return {each.id: key for each, key in zip(stored, keys, strict=True)}

    async def verified(self, envelope: dict[str, Any]) -> Any:
        """What `envelope` says, as others read it with the service's keys."""
        keys = await self.keys()
        (signature,) = envelope["signatures"]
        return verified(envelope, signature["keyid"], keys[signature["keyid"]].public)


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with running_registry() as running:
        yield running


@pytest.fixture
async def attested(settings: Settings, registry: FakeRegistry) -> AsyncIterator[Attested]:
    async with running_proxy(settings, registry) as running:
        yield Attested(running)
