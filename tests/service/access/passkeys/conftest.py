"""What tests of passkeys share."""

import pytest

from tests.conftest import World
from tests.service.access.passkeys.holders import Holder


@pytest.fixture
def holder(world: World) -> Holder:
    """Acme's auditor, signed in, without a passkey yet."""
    return Holder(world).with_session_of("auditor")


@pytest.fixture
async def registered(holder: Holder) -> Holder:
    """The same with one."""
    answer = await holder.register()
    assert answer.status_code == 201, await answer.get_data(as_text=True)
    return holder
