"""A browser that signs in, step by step, so that tests can change one of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from service.core.settings import Settings
from service.orgs.domains import set_domain
from service.orgs.members import add_member
from service.store.tables import Member, Organisation
from tests.conftest import BY_OPERATOR, SettableClock, running_world
from tests.service.browsing import Browser
from tests.sign_in.fixtures import ProviderProcess
from tests.talking import PLAIN

SIGN_IN = "/admin/ui/sign-in"
ADA = "ada@acme.example"


@dataclass
class Visitor(Browser):
    """A person with a browser of their own and an account at `idp`."""

    idp: ProviderProcess = field(kw_only=True)

    async def start(self, name: str = "google", **query: str) -> str:
        """Press the button; where the browser is sent."""
        answer = await self.get(f"{SIGN_IN}/{name}", **query)
        assert answer.status_code == 303, await answer.get_data(as_text=True)
        return answer.headers["location"]

    async def begin(self, name: str = "google", **query: str) -> dict[str, str]:
        """Press the button and agree at the provider; the query it sends the browser back with."""
        return self.idp.approve(await self.start(name, **query))

    async def end(self, back: dict[str, str], name: str = "google") -> Any:
        """Come back with the query `back`."""
        return await self.get(f"{SIGN_IN}/{name}/callback", **back)

    async def sign_in(self, name: str = "google", **query: str) -> Any:
        """All of it; the answer to coming back."""
        return await self.end(await self.begin(name, **query), name)

    async def invite(
        self, email: str = ADA, idp: str = "google", role: str = "auditor", slug: str = "acme"
    ) -> Member:
        async with self.world.services.store.write() as work:
            return await add_member(work, self._org(slug), email, role, idp, BY_OPERATOR)

    async def allow_domain(
        self, domain: str = "acme.example", idp: str = "google", slug: str = "acme"
    ) -> None:
        """Let the people of a domain in uninvited."""
        async with self.world.services.store.write() as work:
            await set_domain(work, self._org(slug), domain, idp, BY_OPERATOR, is_allowed=True)

    async def failures(self, slug: str = "acme") -> list[dict[str, Any]]:
        """The rows about failed sign-ins, newest first."""
        return await self.world.audit(slug, event="sign_in_failed")

    def _org(self, slug: str) -> Organisation:
        return {"acme": self.world.acme, "other": self.world.other}[slug]


@asynccontextmanager
async def open_visit(settings: Settings, idp: ProviderProcess) -> AsyncIterator[Visitor]:
    """A visitor of a world of their own, whose network is the real one; `idp` has their clock."""
    idp.reset()
    clock = SettableClock()
    idp.be(now=clock.now.isoformat())
    transport = httpx2.AsyncHTTPTransport(verify=PLAIN)
    async with running_world(settings, clock, transport=transport, has_sealer=False) as world:
        yield Visitor(world, idp=idp)


async def told(answer: Any, status: int) -> str:
    """What the page with this `status` says went wrong."""
    page = await answer.get_data(as_text=True)
    assert answer.status_code == status, page
    assert answer.content_type == "text/html; charset=utf-8"
    return page.partition('role="alert">')[2].partition("</p>")[0]
