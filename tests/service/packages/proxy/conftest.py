"""What tests of the install proxy share."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from service.core.settings import Settings
from tests.service.packages.proxy.files import Files, open_files
from tests.service.packages.proxy.proxied import Proxied, running_proxy
from tests.service.packages.proxy.registry import FakeRegistry, http_client, running_registry


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    """A registry on loopback."""
    async with running_registry() as running:
        yield running


@pytest.fixture
async def elsewhere() -> AsyncIterator[FakeRegistry]:
    """Another server, which is not configured."""
    async with running_registry() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with http_client() as client:
        yield client


@pytest.fixture
async def files(
    tmp_path: Path, registry: FakeRegistry, http: httpx2.AsyncClient
) -> AsyncIterator[Files]:
    async with open_files(tmp_path, registry, http) as opened:
        yield opened


@pytest.fixture
async def proxied(settings: Settings, registry: FakeRegistry) -> AsyncIterator[Proxied]:
    """A service whose proxy asks `registry`."""
    async with running_proxy(settings, registry) as running:
        yield running
