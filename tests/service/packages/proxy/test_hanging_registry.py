"""A registry that hangs holds up nothing that is cached, and nothing for longer than it hangs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.proxy import circuit_breaker
from service.packages.proxy.answers import UpstreamLimits
from service.packages.proxy.circuit_breaker import CircuitState
from service.packages.proxy.upstream import Upstream
from tests.budgets import budget
from tests.package_documents import SIMPLE, simple_page
from tests.polling import HANG_S, until
from tests.service.packages.install_tokens.jobs import INSTALL, Key, new_key
from tests.service.packages.proxy.proxied import Proxied, wheel_of
from tests.service.packages.proxy.registry import Asked, FakeRegistry, head
from tests.service.packages.proxy.served import Served, is_answering, serving
from tests.tiers import IS_FULL

pytestmark = pytest.mark.slow

REQUESTS = budget(150, 1200)
ROUNDS = budget(1, 3)
SLUGS = ("acme", "other")
USABLE = 56
"""Of 128 connections those that one organisation may have at one registry."""


@dataclass
class Moody:
    """Pages of any project called pkg-N, from a registry that hangs, waits for a word, or is well.

    Requests are counted: those that are never answered, and those that wait for the word.
    """

    registry: FakeRegistry
    hangs: bool = False
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    left_hanging: int = 0
    waiting: int = 0

    def offer(self, names: Iterable[str]) -> None:
        """Have these projects, one for each organisation."""
        for name, slug in product(names, SLUGS):
            self.registry.does(f"/simple/{name}-{slug}/", self.answer)

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if self.hangs:
            self.left_hanging += 1
            await asyncio.sleep(600)
        self.waiting += 1
        await self.may_answer.wait()
        self.waiting -= 1
        name = asked.path.split("/")[2]
        body = simple_page(name)
        writer.write(head(content_type=SIMPLE, content_length=str(len(body))) + body)


@dataclass
class Clients:
    """Package managers of two organisations, each request on a connection of its own."""

    served: Served
    keys: dict[str, Key]

    async def ask(self, slug: str, name: str, patience_s: float) -> str:
        """The status of the response; `reset` or `none` if none came."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.served.port)
        lines = [
            f"GET /proxy/{slug}/pypi/simple/{name}-{slug}/ HTTP/1.1",
            "host: a",
            f"x-service-api-key: {self.keys[slug].secret}",
            "connection: close",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            received = await asyncio.wait_for(reader.read(), patience_s)
        except ConnectionResetError:
            return "reset"
        except TimeoutError:
            return "none"
        finally:
            writer.close()
        return received.split(b" ")[1].decode() if received else "reset"

    async def ask_all(
        self, names: Iterable[str], patience_s: float, slugs: tuple[str, ...] = SLUGS
    ) -> Counter[str]:
        """What came of a request of each organisation for each of `names`, all at once."""
        asked = (self.ask(slug, name, patience_s) for name in names for slug in slugs)
        return Counter(await asyncio.gather(*asked))


@pytest.fixture
async def moody(registry: FakeRegistry) -> Moody:
    return Moody(registry)


@pytest.fixture
async def served(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """An open circuit lasts shorter than usual, but for `make test-all`."""
    monkeypatch.setattr(circuit_breaker, "OPEN_S", budget(0.5, circuit_breaker.OPEN_S))
    async with serving(proxied) as running:
        yield running


@pytest.fixture
async def clients(served: Served) -> Clients:
    world = served.proxied.world
    keys = {slug: await new_key(world, INSTALL, slug=slug) for slug in SLUGS}
    return Clients(served, keys)


def upstream_of(served: Served) -> Upstream:
    public = served.services.proxy.registries[Ecosystem.PYPI].public
    assert public is not None
    return public.upstream


@contextmanager
def short_time_limit(upstream: Upstream) -> Iterator[None]:
    """Half a second in place of 15, but for `make test-all`."""
    usual = upstream.limits
    if not IS_FULL:
        upstream.limits = replace(usual, progress_s=0.5)
    yield
    upstream.limits = usual


async def usable(clients: Clients, moody: Moody, part: str) -> int:
    """How many requests reach the registry at once."""
    names = [f"usable-{part}-{number}" for number in range(USABLE)]
    moody.offer([*names, f"{names[0]}-more"])
    moody.may_answer.clear()
    asked = asyncio.create_task(clients.ask_all([*names, f"{names[0]}-more"], 60, ("acme",)))
    await until(lambda: moody.waiting == USABLE)
    # Nothing announces that no more will come.
    await asyncio.sleep(0.3)
    reached = moody.waiting
    moody.may_answer.set()
    assert await asked == {"200": USABLE + 1}
    return reached


async def recover(clients: Clients, moody: Moody, part: str) -> None:
    """Have the registry be well, and asked again."""
    moody.hangs = False
    moody.may_answer.set()
    upstream = upstream_of(clients.served)
    number = 0
    while upstream.state is not CircuitState.CLOSED:
        moody.offer([f"probe-{part}-{number}"])
        await clients.ask("acme", f"probe-{part}-{number}", 60)
        await asyncio.sleep(0.1)
        number += 1


@pytest.mark.timeout(600)
async def test_requests_that_waited_in_vain_cost_no_connection(clients: Clients, moody: Moody):
    upstream = upstream_of(clients.served)
    before = await usable(clients, moody, "before")
    for round_ in range(ROUNDS):
        names = [f"pkg-{round_}-{number}" for number in range(REQUESTS // 2)]
        moody.offer(names)
        moody.hangs = True
        half = len(names) // 2
        with short_time_limit(upstream):
            patient, hasty = await asyncio.gather(
                clients.ask_all(names[:half], 60), clients.ask_all(names[half:], 0.3)
            )

        assert set(patient) <= {"502", "503"}, patient
        assert "reset" not in hasty
        await recover(clients, moody, str(round_))

    assert before == USABLE
    assert await usable(clients, moody, "after") == before
    await until(lambda: (upstream.admission.under_way, upstream.admission.waiting) == (0, 0))


async def test_one_organisation_does_not_hold_up_another(clients: Clients, moody: Moody):
    names = [f"slow-{number}" for number in range(200)]
    moody.offer([*names, "other"])
    moody.hangs = True
    first = asyncio.create_task(clients.ask_all(names, 60, ("acme",)))
    await until(lambda: moody.left_hanging == USABLE)
    moody.hangs = False
    moody.may_answer.set()

    assert await clients.ask("other", "other", 30) == "200"
    first.cancel()


async def test_slow_downloads_of_one_organisation_do_not_hold_up_another(
    served: Served, clients: Clients, moody: Moody
):
    names = [f"large-{number}" for number in range(140)]

    async def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
        moody.left_hanging += 1
        writer.write(head(content_length="4000000") + b"x")
        await writer.drain()
        await moody.may_answer.wait()

    for name in names:
        served.proxied.publishes(name, wheel_of(name, "1.0", size=4_000_000))
        moody.registry.does(f"/files/{name.replace('-', '_')}-1.0-py3-none-any.whl", drip)
    paths = [await served.proxied.path_of(name) for name in names]
    downloads = [asyncio.create_task(served.get(path)) for path in paths]
    await until(lambda: moody.left_hanging == USABLE)
    served.proxied.publishes("small-other", wheel_of("small", "1.0"))

    assert await clients.ask("other", "small", 30) == "200"
    for download in downloads:
        download.cancel()
    moody.may_answer.set()


async def test_a_client_that_reads_nothing_holds_no_place(served: Served, moody: Moody):
    """The file comes into the cache at the registry's speed."""
    proxied, admission = served.proxied, upstream_of(served).admission
    proxied.publishes("large", wheel_of("large", "1.0", bytes(16 * 2**20)))
    path = await proxied.path_of("large")
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
    writer.write(
        f"GET /proxy/acme/{path} HTTP/1.1\r\nhost: a\r\n"
        f"x-service-api-key: {proxied.key.secret}\r\n\r\n".encode()
    )
    await until(lambda: moody.registry.times("/files/large-1.0-py3-none-any.whl") == 1)
    await until(lambda: admission.under_way == 0)

    assert is_answering()
    writer.close()


async def test_clients_that_disconnect_give_up_their_turn(clients: Clients, moody: Moody):
    admission = upstream_of(clients.served).admission
    admission.wait_s = 600
    names = [f"left-{number}" for number in range(200)]
    moody.offer(names)
    moody.hangs = True
    hasty = asyncio.create_task(clients.ask_all(names, 600, ("acme",)))
    await until(lambda: admission.waiting == 200 - USABLE)
    hasty.cancel()
    await until(lambda: admission.waiting == 0)

    assert moody.left_hanging == USABLE


async def test_what_is_cached_installs_while_the_registry_hangs(served: Served, moody: Moody):
    """One request after the other, as pip asks: each would wait for as long as the registry may."""
    proxied, upstream = served.proxied, upstream_of(served)
    upstream.limits = UpstreamLimits(progress_s=2 * HANG_S, document_s=2 * HANG_S)
    names = [f"cached-{number}" for number in range(40)]
    for name in names:
        proxied.publishes(name, wheel_of(name, "1.0"))
    paths = {name: await proxied.path_of(name) for name in names}
    for path in paths.values():
        assert (await served.get(path)).status == 200
    proxied.clock.now += timedelta(minutes=5)
    for name in names:
        moody.registry.does(f"/simple/{name}/", moody.answer)
    moody.hangs = True

    async with asyncio.timeout(HANG_S):
        for name, path in paths.items():
            page = await served.get(f"pypi/simple/{name}/")
            assert page.status == 200
            assert b"cache-status: countersign; hit; ttl=-240" in page.head
            assert (await served.get(path)).status == 200
