"""Who may create and revoke which bindings, once they hold oidc:w."""

import pytest

from service.orgs.teams import create_team, set_team_admin
from tests.conftest import BY_OPERATOR, World, bindings_path, grant, refused

LACKS = (403, "missing capability: oidc:w")
NOT_ORG_ADMIN = (403, "organisation-level bindings are changed by owners and admins only")
NOT_TEAM_ADMIN = (403, "caller is not an admin of this team")


async def outcome(response) -> int | tuple[int, str]:
    """The status of a success, or the refusal."""
    return response.status_code if response.status_code < 400 else await refused(response)


def headers_of(world: World, caller: str) -> dict[str, str]:
    return world.admin if caller == "admin token" else world.session(caller)


async def add_row(world: World, **changes: object) -> str:
    """The id of a binding that the admin token created."""
    response = await world.create(**changes)
    assert response.status_code == 201
    return (await response.get_json())["id"]


async def add_team_row(world: World) -> str:
    await add_row(world)
    return await add_row(world, origin="team_admin", team_id=world.team.id)


@pytest.mark.parametrize(
    ("caller", "role", "expected"),
    [
        ("admin token", None, 201),
        ("owner", None, 201),
        ("admin", None, LACKS),
        ("admin", "admin", 201),
        ("auditor", None, LACKS),
        ("auditor", "auditor", NOT_ORG_ADMIN),
        ("member", "member", NOT_ORG_ADMIN),
        ("team_admin", "member", NOT_ORG_ADMIN),
        ("stranger", None, LACKS),
    ],
)
async def test_organisation_level_bindings_are_for_owners_and_admins(
    world: World, caller: str, role: str | None, expected: int | tuple[int, str]
):
    """A capability opens the door; the office decides how far trust may be widened."""
    if role:
        await grant(world, role, "oidc:w")

    answer = await world.create(headers=headers_of(world, caller))

    assert await outcome(answer) == expected
    assert len(await world.bindings()) == (expected == 201)


@pytest.mark.parametrize(
    ("caller", "role", "expected"),
    [
        ("admin token", None, 201),
        ("team_admin", "member", 201),
        ("team_admin", None, LACKS),
        ("member", "member", NOT_TEAM_ADMIN),
        ("owner", None, NOT_TEAM_ADMIN),
        ("admin", "admin", NOT_TEAM_ADMIN),
        ("stranger", None, LACKS),
    ],
)
async def test_team_bindings_are_for_the_admins_of_that_team(
    world: World, caller: str, role: str | None, expected: int | tuple[int, str]
):
    """Also not for owners: the row says that the team vouches for it."""
    await add_row(world)
    if role:
        await grant(world, role, "oidc:w")

    answer = await world.create(
        headers=headers_of(world, caller), origin="team_admin", team_id=world.team.id
    )

    assert await outcome(answer) == expected


async def test_an_owner_who_administers_the_team_may_create_its_bindings(world: World):
    """The two offices add up."""
    await add_row(world)
    async with world.services.store.write() as work:
        await set_team_admin(work, world.team, world.members["owner"], BY_OPERATOR, is_admin=True)

    answer = await world.create(
        headers=world.session("owner"), origin="team_admin", team_id=world.team.id
    )

    assert answer.status_code == 201


async def test_a_team_admin_touches_no_other_teams_bindings(world: World):
    await grant(world, "member", "oidc:w")
    await add_row(world)
    async with world.services.store.write() as work:
        second = await create_team(work, world.acme, "second", BY_OPERATOR)
    theirs = {"origin": "team_admin", "team_id": second.id}
    session = world.session("team_admin")

    assert await refused(await world.create(headers=session, **theirs)) == NOT_TEAM_ADMIN
    row = await add_row(world, **theirs)
    answer = await world.client.delete(bindings_path("acme", row), headers=session)
    assert await refused(answer) == NOT_TEAM_ADMIN
    assert {binding["revokedAt"] for binding in await world.bindings()} == {None}


async def test_a_former_team_admin_is_none(world: World):
    """Offices are read with every request, not from the session."""
    await grant(world, "member", "oidc:w")
    await add_row(world)
    async with world.services.store.write() as work:
        await set_team_admin(
            work, world.team, world.members["team_admin"], BY_OPERATOR, is_admin=False
        )

    answer = await world.create(
        headers=world.session("team_admin"), origin="team_admin", team_id=world.team.id
    )

    assert await refused(answer) == NOT_TEAM_ADMIN


async def test_a_team_on_an_organisation_level_binding_is_checked_and_not_stored(world: World):
    """A team that does not exist is a mistake; one that does adds nothing to such a row."""
    await add_row(world, team_id=world.team.id)

    (binding,) = await world.bindings()
    assert (binding["origin"], binding["teamId"]) == ("org_admin", None)
    answer = await world.create(repository_id="5", team_id="team_0")
    assert await refused(answer) == (400, "team_id not found for this org")


async def test_naming_their_team_does_not_help_a_team_admin_past_the_organisations_level(
    world: World,
):
    """Otherwise team admins could write the envelope that is meant to hold them."""
    await grant(world, "member", "oidc:w")

    answer = await world.create(headers=world.session("team_admin"), team_id=world.team.id)

    assert await refused(answer) == NOT_ORG_ADMIN


@pytest.mark.parametrize(
    ("caller", "role", "org_row", "team_row"),
    [
        ("admin token", None, 200, 200),
        ("owner", None, 200, 200),
        ("admin", "admin", 200, 200),
        ("admin", None, LACKS, LACKS),
        ("auditor", "auditor", NOT_ORG_ADMIN, NOT_TEAM_ADMIN),
        ("member", "member", NOT_ORG_ADMIN, NOT_TEAM_ADMIN),
        ("team_admin", "member", NOT_ORG_ADMIN, 200),
        ("team_admin", None, LACKS, LACKS),
        ("stranger", None, LACKS, LACKS),
    ],
)
async def test_who_may_revoke(world: World, caller, role, org_row, team_row):
    """Owners and admins may withdraw any trust, their teams' included; a team only its own."""
    team_id = await add_team_row(world)
    org_id = next(row["id"] for row in await world.bindings() if row["id"] != team_id)
    if role:
        await grant(world, role, "oidc:w")

    answers = [
        await world.client.delete(
            bindings_path("acme", binding_id), headers=headers_of(world, caller)
        )
        for binding_id in (team_id, org_id)
    ]

    assert [await outcome(answer) for answer in answers] == [team_row, org_row]
    revoked = {row["id"] for row in await world.bindings() if row["revokedAt"]}
    expected = {(team_id, team_row), (org_id, org_row)}
    assert revoked == {binding_id for binding_id, status in expected if status == 200}


async def test_a_grant_that_is_withdrawn_is_gone_with_the_next_request(world: World):
    """Overrides are read with every request."""
    await grant(world, "admin", "oidc:w")
    assert (await world.create(headers=world.session("admin"))).status_code == 201

    await grant(world, "admin")

    answer = await world.create(headers=world.session("admin"), repository_id="5")
    assert await refused(answer) == LACKS
