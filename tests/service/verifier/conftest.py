"""What tests of the verifier share."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from service.metrics import Metrics
from service.settings import Settings
from service.verifier.key_source import KeySource
from tests.conftest import ISSUER, SettableClock, settings_over
from tests.issuers.fixtures import issuer_process
from tests.service.verifier.gates import Gate, open_gate
from tests.service.verifier.sources import GITHUB, Desk, Network

__all__ = ["issuer_process"]  # a fixture for all tests here


@pytest.fixture
async def desk(clock: SettableClock) -> AsyncIterator[Desk]:
    """A source that has no keys yet."""
    network, metrics = Network(), Metrics()
    async with httpx.AsyncClient(transport=httpx.MockTransport(network.answer)) as http:
        source = KeySource({ISSUER: GITHUB}, http, clock, metrics)
        yield Desk(source, network, clock, metrics)
        network.gate.set()
        await source.close()


@pytest.fixture
async def warm(desk: Desk) -> Desk:
    """A source with fresh keys, and a network that has counted nothing."""
    await desk.source.warm_up()
    desk.issuer.requests.clear()
    return desk


@pytest.fixture
async def gate(settings: Settings) -> AsyncIterator[Gate]:
    """A gate of the test's own."""
    async with open_gate(settings) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gate]:
    """One gate for all tests of a module that change nothing behind it."""
    async with open_gate(settings_over(tmp_path_factory.mktemp("gate"))) as opened:
        yield opened
