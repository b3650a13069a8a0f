"""The teams and projects pages: made by name, and teams given their admins."""

import pytest

from service.orgs.api_keys import issue_api_key
from service.orgs.projects import create_project
from service.orgs.teams import create_team
from service.pages import page as page_module
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, bindings_path, grant
from tests.service.pages.page import ORG, send_form
from tests.service.pages.people.desk import (
    add_person,
    leads_to,
    post,
    see,
)

LIMITED = ("Live API keys", "Active bindings")
KINDS = [("teams", "team_created"), ("projects", "project_created")]


@pytest.mark.parametrize("kind", ["teams", "projects"])
async def test_long_lists_are_paged_and_searched(world, monkeypatch, kind):
    """A page of 10,000 lines held the event loop for 0.2 s."""
    monkeypatch.setattr(page_module, "ROWS_MAX", 3)
    make = create_team if kind == "teams" else create_project
    async with world.services.store.write() as work:
        for number in range(5):
            await make(work, world.acme, f"Many_{number}", BY_OPERATOR)
    first = await see(world, f"{kind}?find=mANY_")
    second = await see(world, first.link(f"More {kind}").removeprefix(f"{ORG}/"))
    rows = [
        [row.text.split()[0] for row in page.all("tr") if "id" in row.attributes]
        for page in (first, second)
    ]

    assert rows == [["Many_0", "Many_1", "Many_2"], ["Many_3", "Many_4"]]
    assert second.link(f"First {kind}") == f"{ORG}/{kind}?find=mANY_"
    unmatched = await see(world, f"{kind}?find=%25")
    assert f"No {kind[:-1]}’s name contains this." in unmatched.one("main").text


@pytest.mark.parametrize("kind", ["teams", "projects"])
async def test_those_of_another_organisation_are_not_listed(world, kind):
    make = create_team if kind == "teams" else create_project
    async with world.services.store.write() as work:
        await make(work, world.other, "theirs", BY_OPERATOR)
    for path in (kind, f"{kind}?find=theirs", "bindings/new"):
        assert "theirs</" not in (await see(world, path)).html


async def test_an_admin_is_added_from_any_part_of_the_list(world, monkeypatch):
    monkeypatch.setattr(page_module, "ROWS_MAX", 1)
    async with world.services.store.write() as work:
        team = await create_team(work, world.acme, "zebras", BY_OPERATOR)
    page = await see(world, "teams?after=platform")
    action = f"{ORG}/teams/{team.id}/admins?after=platform"
    answer = await send_form(world, page, action, member="auditor@acme.example")
    page = await see(world, leads_to(answer).removeprefix(f"{ORG}/"))

    assert leads_to(answer) == f"{ORG}/teams?after=platform&done=appointed"
    assert "auditor@acme.example" in page.one("tr", id=team.id).text
    assert "team_admin@acme.example" not in page.one("table").text


async def test_a_project_shows_what_is_limited_to_it(world):
    async with world.services.store.write() as work:
        await issue_api_key(
            work, world.acme, "one", world.project, BY_OPERATOR, scopes=PROXY_SCOPES
        )
        await issue_api_key(work, world.acme, "all", None, BY_OPERATOR, scopes=PROXY_SCOPES)
    await world.create(repository_id="1", project_id=world.project.id)
    ended = await world.create(repository_id="2", project_id=world.project.id)
    await world.create(repository_id="3")
    await world.client.delete(
        bindings_path("acme", (await ended.get_json())["id"]), headers=world.admin
    )
    page = await see(world, "projects")

    counts = [page.one("td", **{"data-label": name}).text for name in LIMITED]
    assert counts == ["1", "1"]


async def test_admins_beyond_ones_own_role_are_not_offered(world):
    """The API refuses to add or dismiss them."""
    await grant(world, "admin", "org:admin")
    await add_person(world, "second_owner", "owner")
    member_id = world.members["second_owner"].id
    leads_to(await post(world, f"teams/{world.team.id}/admins", member=member_id))
    offered = await see(world, "teams", "admin")

    assert not offered.all("option", value="second_owner@acme.example")
    assert not [form for form in offered.forms if member_id in form]
    assert "second_owner@acme.example" in offered.one("tr", id=world.team.id).text
