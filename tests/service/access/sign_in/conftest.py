"""What tests of signing in share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from service.core.settings import Settings
from tests.service.access.sign_in.visitors import Visitor, open_visit
from tests.sign_in.fixtures import ProviderProcess


@pytest.fixture(scope="session")
def idp() -> Iterator[ProviderProcess]:
    """One identity provider for all tests here; a visit begins with a good one."""
    process = ProviderProcess()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
async def visitor(settings: Settings, idp: ProviderProcess) -> AsyncIterator[Visitor]:
    """A visitor who has not signed in, at a service that knows all three providers."""
    async with open_visit(idp.known_to(settings), idp) as opened:
        yield opened
