"""What one organisation or key asks of the proxy at once is bounded, and no other notices it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest

from service.core.settings import Settings
from service.packages.proxy.admission import BURST_S
from service.packages.proxy.circuit_breaker import CircuitState
from tests.conftest import SCRAPER
from tests.polling import until
from tests.service.packages.install_tokens.jobs import INSTALL, Key, new_key
from tests.service.packages.proxy.proxied import Proxied, running_proxy, shown, wheel_of
from tests.service.packages.proxy.registry import FakeRegistry, head
from tests.service.packages.proxy.served import Served, serving

PER_KEY, PER_ORG = 3, 4
LARGE = 16 * 2**20
"""More than the buffers of a connection hold."""


@asynccontextmanager
async def clients_that_read_nothing(served: Served, path: str, *keys: Key) -> AsyncIterator[None]:
    """A client for each key, which has the head of an answer and does not read on."""
    async with AsyncExitStack() as stack:
        for key in keys:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
            stack.callback(writer.close)
            request = f"GET /proxy/acme/{path} HTTP/1.1\r\nhost: a\r\n"
            writer.write(f"{request}x-service-api-key: {key.secret}\r\n\r\n".encode())
            assert await reader.readexactly(12) == b"HTTP/1.1 200"
        yield


class TestAnswers:
    @pytest.fixture
    async def served(self, proxied: Proxied) -> AsyncIterator[Served]:
        limits = {"proxy_answers_per_key_max": PER_KEY, "proxy_answers_per_org_max": PER_ORG}
        async with serving(proxied, **limits) as running:
            yield running

    @pytest.fixture
    async def path(self, served: Served) -> str:
        """A large file that is in the cache."""
        served.proxied.publishes("large", wheel_of("large", "1.0", bytes(LARGE)))
        path = await served.proxied.path_of("large")
        assert (await served.get(path)).status == 200
        return path

    async def ask(self, served: Served, path: str, key: Key, slug: str = "acme") -> tuple[int, str]:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(
                f"http://127.0.0.1:{served.port}/proxy/{slug}/{path}",
                headers={"x-service-api-key": key.secret},
            )
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "5"
            return 429, str(answer.json()["error"])
        return answer.status_code, ""

    async def test_those_of_a_key_are_bounded(self, served: Served, path: str):
        """Those of another key are answered meanwhile."""
        proxied = served.proxied
        another = await new_key(proxied.world, INSTALL)
        async with clients_that_read_nothing(served, path, *[proxied.key] * PER_KEY):
            status, text = await self.ask(served, "npm/-/ping", proxied.key)
            assert status == 429
            assert "this key" in text
            assert "COUNTERSIGN_PROXY_ANSWERS_PER_KEY_MAX" in text
            assert await self.ask(served, "npm/-/ping", another) == (200, "")

    async def test_those_of_an_organisation_are_bounded(
        self, served: Served, path: str, http: httpx2.AsyncClient
    ):
        """However many keys it has; another organisation is served."""
        proxied = served.proxied
        keys = [await new_key(proxied.world, INSTALL) for _ in range(PER_ORG)]
        foreign = await new_key(proxied.world, INSTALL, slug="other")
        async with clients_that_read_nothing(served, path, *keys):
            status, text = await self.ask(served, "npm/-/ping", proxied.key)
            assert status == 429
            assert "this organisation" in text
            assert "COUNTERSIGN_PROXY_ANSWERS_PER_ORG_MAX" in text
            assert await self.ask(served, "npm/-/ping", foreign, "other") == (200, "")

            address = f"http://127.0.0.1:{served.port}/metrics"
            exposed = (await http.get(address, headers=SCRAPER)).text
        org = proxied.world.acme.id
        assert f'countersign_proxy_answers{{tenant="{org}"}} {PER_ORG}.0' in exposed
        refused = f'countersign_proxy_refused_total{{reason="answers_of_org",tenant="{org}"}} 1.0'
        assert refused in exposed

    async def test_an_answer_that_ends_makes_room(self, served: Served, path: str):
        key = served.proxied.key
        for _ in range(3 * PER_ORG):
            assert await self.ask(served, path, key) == (200, "")
        places = served.services.proxy.answers
        for _ in range(2):
            async with clients_that_read_nothing(served, path, *[key] * PER_KEY):
                assert (await self.ask(served, "npm/-/ping", key))[0] == 429
            await until(lambda: places.under_way == 0)


class TestRequestsToARegistry:
    @pytest.fixture
    async def proxied(self, settings: Settings, registry: FakeRegistry) -> AsyncIterator[Proxied]:
        async with running_proxy(settings, registry, proxy_requests_per_s=0.1) as running:
            yield running

    async def test_very_many_names_of_one_organisation_do_not_keep_another_from_it(
        self, proxied: Proxied
    ):
        proxied.publishes("cached", wheel_of("cached", "1.0"))
        await proxied.page("cached")
        answers = [await proxied.get(f"npm/unknown-{number}") for number in range(9)]
        statuses = [answer.status_code for answer in answers]
        may = int(0.1 * BURST_S)
        assert statuses == [404] * may + [429] * (9 - may)
        status, text = await shown(answers[-1])
        assert (status, answers[-1].headers["retry-after"]) == (429, "5")
        assert "COUNTERSIGN_PROXY_REQUESTS_PER_S" in text
        assert len([asked for asked in proxied.registry.asked if "unknown" in asked.path]) == may
        await proxied.page("cached")

        foreign = await new_key(proxied.world, INSTALL, slug="other")
        proxied.publishes_npm("left-pad", "1.0.0")
        answer = await proxied.client.get(
            "/proxy/other/npm/left-pad", headers={"x-service-api-key": foreign.secret}
        )
        assert answer.status_code == 200

    async def test_a_registry_that_refuses_is_a_429_and_a_copy_is_served(self, proxied: Proxied):
        proxied.publishes("left-pad", wheel_of("left-pad", "1.0"))
        path = await proxied.path_of("left-pad")

        async def limited(_: object, writer: asyncio.StreamWriter) -> None:
            writer.write(head(429, content_length="0", retry_after="9"))

        for source in (
            "/simple/left-pad/",
            "/simple/other/",
            "/files/left_pad-1.0-py3-none-any.whl",
        ):
            proxied.registry.does(source, limited)
        file = await proxied.get(path)
        unknown = await proxied.get("pypi/simple/other/")
        proxied.clock.advance(minutes=5)
        stale = await proxied.get("pypi/simple/left-pad/")

        assert (await shown(file))[0] == (await shown(unknown))[0] == 429
        assert file.headers["retry-after"] == unknown.headers["retry-after"] == "9"
        assert stale.status_code == 200
        assert proxied.world.services.proxy.circuits()["pypi"] == CircuitState.CLOSED
