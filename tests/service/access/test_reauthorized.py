"""Who lost their rights while their request was coming in changes nothing with it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from service.access.sessions import revoke_sessions
from service.orgs.members import remove_member, set_role
from service.orgs.roles import set_role_override
from service.orgs.teams import set_team_admin
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation, Team
from tests.conftest import BY_OPERATOR, World, binding_body, bindings_path, grant, refused


async def removed(work: UnitOfWork, org: Organisation, member: Member) -> None:
    await remove_member(work, org, member, BY_OPERATOR)


async def demoted(work: UnitOfWork, org: Organisation, member: Member) -> None:
    await set_role(work, org, member, "auditor", BY_OPERATOR)


async def signed_out(work: UnitOfWork, org: Organisation, member: Member) -> None:
    await revoke_sessions(work.session, member.id, work.now)


async def without_override(work: UnitOfWork, org: Organisation, member: Member) -> None:
    await set_role_override(work, org, "admin", [], BY_OPERATOR)


LOSSES = [(removed, 401), (signed_out, 401), (demoted, 403), (without_override, 403)]


@pytest.mark.parametrize(("loss", "status"), LOSSES)
async def test_rights_lost_before_the_body_ended_are_lost(
    world: World, loss: Callable[[UnitOfWork, Organisation, Member], Awaitable[None]], status: int
):
    """The body can arrive last, long after the head that was accepted."""
    await grant(world, "admin", "oidc:r", "oidc:w")
    before = await world.bindings()
    connection = world.client.request(
        bindings_path(),
        method="POST",
        headers={**world.session("admin"), "content-type": "application/json"},
    )
    async with connection:
        body = json.dumps(binding_body()).encode()
        await connection.send(body[:5])
        await asyncio.sleep(0.2)  # long enough to be let in; if not, it is refused all the same
        async with world.services.store.write() as work:
            org = await work.session.get_one(Organisation, world.acme.id)
            member = await work.session.get_one(Member, world.members["admin"].id)
            await loss(work, org, member)
        await connection.send(body[5:])
        await connection.send_complete()
    answer = await connection.as_response()

    assert (await refused(answer))[0] == status
    assert await world.bindings() == before


async def test_a_team_lost_meanwhile_is_lost(world: World):
    await grant(world, "member", "oidc:w")
    await world.create()
    caller = world.session("team_admin")
    async with world.services.store.write() as work:
        team = await work.session.get_one(Team, world.team.id)
        member = await work.session.get_one(Member, world.members["team_admin"].id)
        await set_team_admin(work, team, member, BY_OPERATOR, is_admin=False)

    answer = await world.create(caller, origin="team_admin", team_id=world.team.id)

    assert await refused(answer) == (403, "caller is not an admin of this team")
