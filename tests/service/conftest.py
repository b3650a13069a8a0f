"""What tests of the service share: the gate that tokens come to."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.core.settings import Settings
from tests.conftest import settings_over
from tests.service.gates import Gate, open_gate


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
