"""The form that creates a binding: what it offers to whom, what it says, and what it keeps."""

import pytest

from service.access.refusals import NotOrgAdmin, NotTeamAdmin
from service.orgs.projects import create_project
from service.orgs.teams import create_team
from service.store.tables import Organisation
from service.trust.refusals import (
    EVENT_NAME_INVALID,
    ISSUER_MISSING,
    ORIGIN_NOT_ALLOWED,
    OUTSIDE_ENVELOPE,
    PROJECT_NOT_FOUND,
    REPOSITORY_ID_MISSING,
    REPOSITORY_ID_NOT_DIGITS,
    SUB_PATTERN_INVALID,
    SUB_PATTERN_MISSING,
    TEAM_ID_MISSING,
    TEAM_NOT_FOUND,
    BindingExists,
)
from tests.conftest import BY_OPERATOR, ISSUER, World, grant
from tests.service.pages.page import Page, open_page, send_form, shown
from tests.service.pages.trust.pages import BINDINGS, EXPLAIN, HOSTILE, NEW, SUB, see

GOOD = {
    "issuer": ISSUER,
    "sub_pattern": SUB,
    "repository_id": "123456789",
    "event_names": "push\r\nschedule",
    "origin": "org_admin",
    "team_id": "",
    "project_id": "",
}


async def send(world: World, who: str = "owner", **changes: str):
    """The answer to the create form, filled in with something good and `changes`."""
    page = await see(world, NEW, who)
    return await send_form(world, page, NEW, who, **(GOOD | changes))


def options(page: Page, name: str) -> list[str]:
    """What the create form's select `name` offers, in words."""
    inside, found = False, []
    for element in page.elements:
        if element.tag == "select":
            inside = element.attributes["id"] == f"new-{name}"
        elif element.tag == "option" and inside:
            found.append(element.text)
    return found


def kept(page: Page) -> dict[str, str]:
    """What stands in the create form's fields."""
    form = {field.attributes["name"]: field.text[1:] for field in page.all("textarea")}
    form["repository_id"] = page.values("repository_id")[0]
    chosen = [option.attributes["value"] for option in page.all("option", selected="")]
    return form | {"chosen": chosen}


async def test_a_binding_is_created_as_typed_and_shown(world):
    response = await send(world, project_id=world.project.id)
    (binding,) = await world.bindings()

    assert response.status_code == 303
    assert response.headers["location"] == f"{BINDINGS}/{binding['id']}?done=created"
    assert binding["subPattern"] == SUB
    assert binding["eventNames"] == ["push", "schedule"]
    assert binding["projectId"] == world.project.id
    assert binding["addedBy"] == f"github:{world.members['owner'].id}"
    (row,) = await world.audit(event="oidc_binding_created")
    assert row["verdict_source"] == "dashboard"
    page = await see(world, response.headers["location"])
    assert page.one("p", role="status").text.startswith("The binding is active")


async def test_what_a_field_adds_is_not_part_of_what_it_holds(world):
    assert (
        await send(world, sub_pattern=f"{SUB}\r\n", event_names="\r\n push \r\n\r\nschedule\r\n")
    ).status_code == 303
    (binding,) = await world.bindings()

    assert (binding["subPattern"], binding["eventNames"]) == (SUB, ["push", "schedule"])


@pytest.mark.parametrize(
    ("field", "text", "refusal"),
    [
        ("issuer", "", ISSUER_MISSING),
        ("sub_pattern", f"{SUB} ", SUB_PATTERN_INVALID),
        ("repository_id", "", REPOSITORY_ID_MISSING),
        ("event_names", "pull request", EVENT_NAME_INVALID),
        ("origin", "platform_admin", ORIGIN_NOT_ALLOWED),
        ("project_id", "proj_missing", PROJECT_NOT_FOUND),
        ("team_id", "team_missing", TEAM_NOT_FOUND),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_is_the_apis_text_beside_its_field(shared_world, field, text, refusal):
    page = await shown(await send(shared_world, **{field: text}), 400)
    note = page.one("p", id=f"hint-new-{field}", **{"class": "fault"})

    assert note.text == refusal.text.format(value=ISSUER, limit=64)
    (at_fault,) = [one for one in page.elements if "aria-invalid" in one.attributes]
    assert at_fault.attributes["name"] == field
    wanted = GOOD | {field: text}
    for name in ("sub_pattern", "event_names", "repository_id"):
        assert kept(page)[name].replace("\r\n", "\n") == wanted[name].replace("\r\n", "\n")
    assert await shared_world.bindings() == []


@pytest.mark.asyncio(loop_scope="module")
async def test_all_faults_are_shown_at_once(shared_world):
    """The API names the first one alone, as the specification has it."""
    page = await shown(
        await send(shared_world, sub_pattern="", repository_id="x", event_names="a b"), 400
    )

    at_fault = [one.attributes["name"] for one in page.elements if "aria-invalid" in one.attributes]
    assert at_fault == ["sub_pattern", "repository_id", "event_names"]
    for field, refusal in (
        ("sub_pattern", SUB_PATTERN_MISSING),
        ("repository_id", REPOSITORY_ID_NOT_DIGITS),
        ("event_names", EVENT_NAME_INVALID),
    ):
        assert page.one("p", id=f"hint-new-{field}", **{"class": "fault"}).text == refusal.text


async def test_an_issuer_that_is_not_accepted_is_repeated_as_text(world):
    page = await shown(await send(world, issuer=HOSTILE), 400)

    assert page.one("p", id="hint-new-issuer").text == f"issuer is not on the allowlist: {HOSTILE}"
    assert not page.all("img")


async def test_a_conflict_names_the_binding_in_the_way(world):
    binding_id = await world.bind()
    page = await shown(await send(world), 409)
    alert = page.one("div", role="alert")

    assert BindingExists.text in alert.text
    assert binding_id in alert.text
    assert page.link(binding_id) == f"{BINDINGS}/{binding_id}"
    assert kept(page)["sub_pattern"] == SUB


async def test_a_conflict_with_another_organisation_names_nothing_of_theirs(world):
    """Whose it is, is not ours to know."""
    body = {**GOOD, "event_names": [], "team_id": None, "project_id": None}
    response = await world.client.post(
        "/api/v1/admin/orgs/other/oidc-bindings", headers=world.admin, json=body
    )
    theirs = (await response.get_json())["id"]
    page = await shown(await send(world), 409)

    assert BindingExists.text in page.one("div", role="alert").text
    assert theirs not in page.html
    assert "obind_" not in page.one("main").text


async def test_the_admin_token_creates_without_a_session(world):
    """No browser sends its header by itself, so it needs no form token."""
    page = await open_page(world, NEW, **world.admin)
    response = await world.client.post(NEW, form=GOOD, headers=world.admin)

    assert options(page, "team_id") == ["none", "platform"]
    assert page.forms == {NEW: {}, EXPLAIN: {}}
    assert response.status_code == 303
    (binding,) = await world.bindings()
    assert binding["addedBy"] == "system:admin-token"


async def test_other_organisations_teams_and_projects_are_neither_offered_nor_taken(world):
    async with world.services.store.write() as work:
        other = await work.session.get(Organisation, world.other.id)
        team = await create_team(work, other, "foreigners", BY_OPERATOR)
        project = await create_project(work, other, "foreign-project", BY_OPERATOR)
    page = await see(world, NEW)

    assert "foreign" not in page.html
    for field, text in (("team_id", team.id), ("project_id", project.id)):
        again = await shown(await send(world, **{field: text}), 400)
        said = again.one("p", id=f"hint-new-{field}").text
        assert said == f"{field} not found for this org"


async def test_a_team_admin_is_offered_their_teams_and_nothing_above(world):
    await grant(world, "member", "oidc:r", "oidc:w")
    async with world.services.store.write() as work:
        acme = await work.session.get(Organisation, world.acme.id)
        foreign = await create_team(work, acme, "foreign", BY_OPERATOR)
    page = await see(world, NEW, "team_admin")
    assert options(page, "team_id") == ["none", "platform"]
    assert [text.split(":")[0] for text in options(page, "origin")] == ["team_admin"]

    team = {"origin": "team_admin", "team_id": world.team.id}
    outside = await shown(await send(world, "team_admin", **team), 400)
    assert OUTSIDE_ENVELOPE.text in outside.one("div", role="alert").text
    await world.bind()
    assert (await send(world, "team_admin", **team)).status_code == 303
    for field, changes, refusal in (
        ("origin", {"sub_pattern": "repo:acme/other:x"}, NotOrgAdmin),
        ("team_id", team | {"team_id": foreign.id}, NotTeamAdmin),
        ("team_id", {"origin": "team_admin"}, TEAM_ID_MISSING),
    ):
        again = await shown(await send(world, "team_admin", **changes), refusal.status)
        assert again.one("p", id=f"hint-new-{field}").text == refusal.text
        assert kept(again)["sub_pattern"] == (GOOD | changes)["sub_pattern"]
    assert len(await world.bindings()) == 2


async def test_owners_are_offered_both_levels(world):
    page = await see(world, NEW)

    assert [text.split(":")[0] for text in options(page, "origin")] == ["org_admin", "team_admin"]
    assert options(page, "team_id") == ["none"]
    assert options(page, "project_id") == ["any", "payments"]


async def test_who_may_create_nothing_is_told_so(world):
    """A capability without an office: the form would refuse whatever they typed."""
    await grant(world, "auditor", "oidc:r", "oidc:w")
    page = await see(world, NEW, "auditor")

    assert "You cannot create bindings" in page.one("main").text
    assert NEW not in page.forms
    assert EXPLAIN in page.forms
