"""Which bindings exclude each other while they are active."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.core.settings import Settings
from service.orgs.projects import create_project
from service.orgs.teams import create_team
from tests.conftest import BY_OPERATOR, ISSUER, World, binding_body, bindings_path, refused

TAKEN = (409, "An active binding already exists for this (issuer, sub, repository_id)")
OUTSIDE = (
    400,
    "team_admin binding falls outside any active org_admin envelope"
    " — ask an org admin to expand the trust envelope first",
)
LAX_ISSUER = "https://ci.example"
ISSUERS_FILE = f"""
[github]
url = "{ISSUER}"
provider = "github"
accepted = true
algorithms = ["RS256"]
requires_repository_id = true
repository_id_claim = "repository_id"
event_name_claim = "event_name"

[lax]
url = "{LAX_ISSUER}"
provider = "circleci"
accepted = true
algorithms = ["RS256"]
requires_repository_id = false
repository_id_claim = "project"
event_name_claim = "event"
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """With a second accepted issuer, which does not require a repository id."""
    issuers_file = tmp_path / "issuers.toml"
    issuers_file.write_text(ISSUERS_FILE)
    return msgspec.structs.replace(settings, issuers_file=issuers_file)


async def add_team(world: World, name: str) -> str:
    async with world.services.store.write() as work:
        return (await create_team(work, world.acme, name, BY_OPERATOR)).id


def team_row(world: World, **changes: Any) -> dict[str, Any]:
    """The changes that make a valid body one of acme's team."""
    return {"origin": "team_admin", "team_id": world.team.id} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"sub_pattern": "repo:acme/payments:ref:refs/heads/MAIN"},
        {"repository_id": "987654321"},
        {"issuer": LAX_ISSUER},
    ],
)
async def test_a_triple_that_differs_in_one_part_is_another_slot(
    world: World, changes: dict[str, Any]
):
    """Compared exactly: a `sub` is case-sensitive."""
    assert (await world.create()).status_code == 201

    assert (await world.create(**changes)).status_code == 201


@pytest.mark.parametrize(
    "changes",
    [
        {"event_names": []},
        {"event_names": ["release"]},
        {"repository_id": "000123456789"},
        {"repository_id": 123456789},
        {"team_id": "acme's team"},
        {"project_id": "acme's project"},
    ],
    ids=str,
)
async def test_nothing_but_the_triple_makes_another_slot(world: World, changes: dict[str, Any]):
    """Otherwise one identity would have two rows that say different things of it."""
    places = {"team_id": world.team.id, "project_id": world.project.id}
    assert (await world.create()).status_code == 201

    again = await world.create(**{key: places.get(key, value) for key, value in changes.items()})

    assert await refused(again) == TAKEN


async def test_two_missing_repository_ids_are_equal(world: World):
    """SQL holds nulls distinct; a slot does not."""
    lax = {"issuer": LAX_ISSUER, "repository_id": ...}
    assert (await world.create(**lax)).status_code == 201

    assert await refused(await world.create(**lax)) == TAKEN
    assert await refused(await world.create(issuer=LAX_ISSUER, repository_id=None)) == TAKEN
    assert (await world.create(issuer=LAX_ISSUER, repository_id="1")).status_code == 201
    assert [binding["repositoryId"] for binding in await world.bindings()].count(None) == 1


async def test_each_team_has_one_slot_below_the_organisations(world: World):
    """A team's row needs the organisation's row beside it, so it cannot share its slot."""
    second = await add_team(world, "second")
    assert (await world.create()).status_code == 201

    assert (await world.create(**team_row(world))).status_code == 201
    assert await refused(await world.create(**team_row(world))) == TAKEN
    assert (await world.create(**team_row(world, team_id=second))).status_code == 201
    assert await refused(await world.create()) == TAKEN


@pytest.mark.parametrize(
    "outside",
    [
        {"sub_pattern": "repo:acme/payments:ref:refs/heads/other"},
        {"repository_id": "5"},
        {"issuer": LAX_ISSUER},
    ],
    ids=str,
)
async def test_a_team_row_needs_an_envelope_of_exactly_its_triple(
    world: World, outside: dict[str, Any]
):
    """A team narrows what its organisation trusts; it never adds to it."""
    assert (await world.create()).status_code == 201

    assert await refused(await world.create(**team_row(world, **outside))) == OUTSIDE


async def test_a_revoked_envelope_is_none(world: World):
    """A team cannot renew trust that the organisation has withdrawn."""
    created = await (await world.create()).get_json()
    await world.revoke(created["id"])

    assert await refused(await world.create(**team_row(world))) == OUTSIDE


async def test_another_teams_row_is_no_envelope(world: World):
    """Only the organisation's own row is one: two teams must not vouch for each other."""
    second = await add_team(world, "second")
    created = await (await world.create()).get_json()
    assert (await world.create(**team_row(world, team_id=second))).status_code == 201
    await world.revoke(created["id"])

    assert await refused(await world.create(**team_row(world))) == OUTSIDE


async def test_another_organisations_row_is_no_envelope(world: World):
    """The slot is shared across the service, the envelope is not."""
    theirs = await world.client.post(
        bindings_path("other"), headers=world.admin, json=binding_body()
    )
    assert theirs.status_code == 201

    assert await refused(await world.create(**team_row(world))) == OUTSIDE


async def test_a_team_row_inherits_its_envelopes_project(world: World):
    """A row limited to one project must not reach the others by way of a team."""
    assert (await world.create(project_id=world.project.id)).status_code == 201

    assert (await world.create(**team_row(world))).status_code == 201
    team_binding = next(row for row in await world.bindings() if row["origin"] == "team_admin")
    assert team_binding["projectId"] == world.project.id
    assert team_binding["teamId"] == world.team.id


async def test_a_team_row_may_narrow_an_open_envelope_to_a_project(world: World):
    assert (await world.create()).status_code == 201

    assert (await world.create(**team_row(world, project_id=world.project.id))).status_code == 201
    team_binding = next(row for row in await world.bindings() if row["origin"] == "team_admin")
    assert team_binding["projectId"] == world.project.id


async def test_a_team_row_may_not_leave_its_envelopes_project(world: World):
    async with world.services.store.write() as work:
        second = await create_project(work, world.acme, "second", BY_OPERATOR)
    assert (await world.create(project_id=world.project.id)).status_code == 201

    answer = await world.create(**team_row(world, project_id=second.id))

    assert await refused(answer) == OUTSIDE
