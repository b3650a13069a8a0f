"""What tests of issuers share."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from service.ci.issuers.key_source import KeySource
from service.core.metrics import Metrics
from tests.conftest import ISSUER, SettableClock
from tests.issuers.fixtures import issuer_process
from tests.service.ci.issuers.sources import GITHUB, KeySourceCase, Network

__all__ = ["issuer_process"]  # a fixture for all tests here


@pytest.fixture
async def desk(clock: SettableClock) -> AsyncIterator[KeySourceCase]:
    """A source that has no keys yet."""
    network, metrics = Network(), Metrics()
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(network.answer)) as http:
        source = KeySource({ISSUER: GITHUB}, http, clock, metrics)
        yield KeySourceCase(source, network, clock, metrics)
        network.gate.set()
        await source.close()


@pytest.fixture
async def warm(desk: KeySourceCase) -> KeySourceCase:
    """A source with fresh keys, and a network that has counted nothing."""
    await desk.source.warm_up()
    desk.issuer.requests.clear()
    return desk
