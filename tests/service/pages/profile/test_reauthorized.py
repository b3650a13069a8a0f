"""A session that ends while its request is coming in changes nothing with it."""

import asyncio
from urllib.parse import urlencode

import pytest

from service.access.passkeys.repository import list_passkeys
from service.access.sessions import revoke_sessions
from tests.conftest import World, refused
from tests.service.access.passkeys.holders import PROFILE, Holder

OWN = {"origin": "http://localhost:8080", "content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("action", ["passkeys/remove", "sessions/end", "sessions/end-others"])
async def test_what_ended_before_the_body_did_is_over(world: World, action: str) -> None:
    """The body can arrive last, long after the head that was accepted."""
    holder = Holder(world).with_session_of("auditor")
    await holder.register()
    page = await holder.profile()
    passkey = page.values("passkey")[0]
    body = urlencode({"csrf": page.values("csrf")[0], "passkey": passkey, "session": "sess_1"})
    connection = world.client.request(
        f"{PROFILE}/{action}", method="POST", headers=world.session("auditor") | OWN
    )

    async with connection:
        await connection.send(body[:5].encode())
        await asyncio.sleep(0.2)  # long enough to be let in; if not, it is refused all the same
        async with world.services.store.write() as work:
            await revoke_sessions(work.session, world.members["auditor"].id, work.now)
        await connection.send(body[5:].encode())
        await connection.send_complete()

    assert (await refused(await connection.as_response()))[0] == 401
    async with world.services.store.read() as session:
        assert len(await list_passkeys(session, world.members["auditor"].id)) == 1
