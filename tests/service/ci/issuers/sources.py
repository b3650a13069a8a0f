"""A key source at work: an issuer's network that can go wrong, and a clock to move."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from service.ci.issuers.issuers import Issuer as AcceptedIssuer
from service.ci.issuers.key_source import KeySource
from service.core.metrics import Metrics
from tests.conftest import ISSUER, SettableClock
from tests.issuers.issuer import Issuer
from tests.issuers.known import GITHUB

KEYS_URL = f"{ISSUER}/.well-known/jwks"
DISCOVERY_URL = f"{ISSUER}/.well-known/openid-configuration"
DOWN = httpx2.Response(503)
Answer = Callable[[httpx2.Request], httpx2.Response]


@dataclass
class Network:
    """The issuer's network: answers as the issuer does, unless something else is `wrong`.

    While `gate` is closed no answer comes.
    """

    issuer: Issuer = field(default_factory=Issuer)
    wrong: Answer | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.issuer.requests.append(str(request.url))
        answer = self.wrong or self.issuer.answer
        response = answer(request)
        await self.gate.wait()
        return response

    def go_down(self) -> None:
        """Answer nothing but 503."""
        self.wrong = lambda _: httpx2.Response(503)

    def come_back(self) -> None:
        self.wrong = None

    @property
    def fetches(self) -> int:
        """How often keys were asked for, or, when that failed, where they are."""
        return self.issuer.requests.count(DISCOVERY_URL)


@dataclass
class KeySourceCase:
    """A key source, and what it works with."""

    source: KeySource
    network: Network
    clock: SettableClock
    metrics: Metrics

    @property
    def issuer(self) -> Issuer:
        """Who signs."""
        return self.network.issuer

    async def kids(self, kid: str = "first", issuer: AcceptedIssuer = GITHUB) -> list[str]:
        """The kids of the keys that a token with this `kid` is checked with."""
        return list((await self.source.keys_for(issuer, kid)).by_kid)

    async def fault(self, kid: str = "first", issuer: AcceptedIssuer = GITHUB) -> str | None:
        """What a token with this `kid` is told of missing keys."""
        return (await self.source.keys_for(issuer, kid)).fault

    def sampled(self) -> dict[str, float]:
        """The key metrics of GitHub."""
        return {
            sample.name.removeprefix("countersign_issuer_"): sample.value
            for family in text_string_to_metric_families(self.metrics.exposition().decode())
            for sample in family.samples
            if sample.labels.get("issuer") == "github" and not sample.name.endswith("_created")
        }


async def settled() -> None:
    """Let what runs in the background get as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


def document(url: str, response: httpx2.Response) -> Answer:
    """The issuer's answers, but `response` at `url`."""
    issuer = Issuer()
    return lambda request: response if str(request.url) == url else issuer.answer(request)


def configuration(**changes: Any) -> httpx2.Response:
    return httpx2.Response(200, json={"issuer": ISSUER, "jwks_uri": KEYS_URL} | changes)
