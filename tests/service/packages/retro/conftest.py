"""What tests of retro-match share: a service in which nothing happens in the background."""

from collections.abc import AsyncIterator

import pytest

from service.core.settings import Settings
from tests.conftest import SettableClock, World, running_world


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """A world whose database only the test itself changes."""
    async with running_world(settings, clock, has_sealer=False) as people:
        yield people
