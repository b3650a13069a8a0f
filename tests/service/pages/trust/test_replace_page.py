"""The page that replaces a binding."""

import pytest

from service.access.callers import cli_caller
from service.trust.bindings.changes import add_binding
from service.trust.refusals import BindingExists
from tests.conftest import World, binding_body, grant
from tests.service.pages.page import OWN_PAGE, press, shown
from tests.service.pages.trust.pages import BINDINGS, NEW, SUB, see

REPLACE = "Replace the binding"
BRANCH = "repo:acme/payments:ref:refs/heads/next"


def path_of(binding_id: str) -> str:
    return f"{BINDINGS}/{binding_id}/replace"


async def test_a_binding_is_replaced_from_its_page(world: World):
    before = await world.bind(event_names=["push", "release"], project_id=world.project.id)
    own = await see(world, f"{BINDINGS}/{before}")
    page = await see(world, own.link("Replace this binding…"))

    answer = await press(world, page.html, REPLACE, sub_pattern=BRANCH, reason="renamed")

    assert answer.status_code == 303
    (after,) = await world.bindings(state="active")
    assert answer.headers["location"] == f"{BINDINGS}/{after['id']}?done=replaced"
    assert (after["subPattern"], after["eventNames"]) == (BRANCH, ["push", "release"])
    assert after["projectId"] == world.project.id
    done = await see(world, answer.headers["location"])
    assert done.one("p", role="status").text.startswith("The binding is active and has replaced")
    old = await see(world, f"{BINDINGS}/{before}")
    assert f"replaced by {after['id']}: renamed" in old.one("main").text
    rows = await world.audit(event=["oidc_binding_created", "oidc_binding_revoked"])
    assert [row["verdict_source"] for row in rows[:2]] == ["dashboard"] * 2
    assert rows[0]["request_id"] == rows[1]["request_id"]


async def test_an_emptied_field_is_not_taken_over(world: World):
    """The form shows all fields, so what is empty in it is meant to be."""
    before = await world.bind(project_id=world.project.id)
    page = await see(world, path_of(before))

    await press(world, page.html, REPLACE, project_id="", event_names="")

    (after,) = await world.bindings(state="active")
    assert (after["projectId"], after["eventNames"]) == (None, [])


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("sub_pattern", "", "sub_pattern is required (string)"),
        ("reason", "x" * 1025, "reason must be at most 1024 chars with no control characters"),
    ],
)
async def test_a_fault_is_beside_its_field_and_changes_nothing(
    world: World, field: str, text: str, said: str
):
    before = await world.bind()
    page = await see(world, path_of(before))

    again = await shown(
        await press(world, page.html, REPLACE, **{"reason": "why", field: text}), 400
    )

    assert again.one("p", id=f"hint-new-{field}").text == said
    assert [each["id"] for each in await world.bindings(state="active")] == [before]


async def test_a_taken_slot_names_the_binding_in_the_way(world: World):
    before, other = await world.bind(), await world.bind(sub_pattern=BRANCH)
    page = await see(world, path_of(before))

    again = await shown(await press(world, page.html, REPLACE, sub_pattern=BRANCH), 409)

    alert = again.one("div", role="alert").text
    assert BindingExists.text in alert
    assert other in alert
    assert len(await world.bindings(state="active")) == 2


async def test_a_conflict_of_the_create_form_is_replaced_with_one_click(world: World):
    await world.bind(event_names=["schedule"])
    fresh = await see(world, NEW)
    typed = {"sub_pattern": SUB, "repository_id": "123456789", "event_names": "push"}
    conflict = await shown(await press(world, fresh.html, "Create the binding", **typed), 409)

    answer = await press(world, conflict.html, REPLACE)

    assert answer.status_code == 303
    (active,) = await world.bindings(state="active")
    assert active["eventNames"] == ["schedule", "push"]


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("", {"environment": "production"}),
        ("environment=staging", {"environment": "staging"}),
        ("ref=refs/heads/main", {"environment": "production", "ref": "refs/heads/main"}),
    ],
)
async def test_conditions_of_the_binding_in_the_way_are_not_dropped(world: World, typed, kept):
    """One click must not trust jobs outside of an environment that nothing on the page names."""
    await world.bind(conditions={"environment": "production"})
    fresh = await see(world, NEW)
    fields = {"sub_pattern": SUB, "repository_id": "123456789", "conditions": typed}
    conflict = await shown(await press(world, fresh.html, "Create the binding", **fields), 409)

    answer = await press(world, conflict.html, REPLACE)

    assert answer.status_code == 303
    (active,) = await world.bindings(state="active")
    assert active["conditions"] == kept


async def test_a_claim_with_two_conditions_is_refused_beside_the_field(world: World):
    fresh = await see(world, NEW)
    fields = {"sub_pattern": SUB, "repository_id": "123456789"}
    twice = "environment=production\nenvironment=staging"

    page = await shown(
        await press(world, fresh.html, "Create the binding", **fields, conditions=twice), 400
    )

    assert "environment has two lines: keep one" in page.one("main").text
    assert await world.bindings() == []


async def test_a_revoked_binding_cannot_be_replaced(world: World):
    before = await world.bind()
    page = await see(world, path_of(before))
    await world.revoke(before, "leaked")

    late = await shown(await press(world, page.html, REPLACE), 409)
    assert "leaked" in late.one("main").text
    headers = world.session("owner") | OWN_PAGE
    assert (await world.client.get(path_of(before), headers=headers)).status_code == 404
    assert path_of(before) not in (await see(world, f"{BINDINGS}/{before}")).html


async def test_the_operators_binding_becomes_the_organisations_own(world: World):
    """A member cannot vouch in the name of the platform."""
    async with world.services.store.write() as work:
        binding = await add_binding(
            work,
            world.acme,
            binding_body(origin="platform_admin"),
            cli_caller("org_platform"),
            world.services.issuers,
        )
    page = await see(world, path_of(binding.id))

    assert (await press(world, page.html, REPLACE)).status_code == 303
    (active,) = await world.bindings(state="active")
    assert active["origin"] == "org_admin"


async def test_the_page_is_for_those_who_may_revoke_and_create(world: World):
    envelope = await world.bind()
    team = await world.bind(origin="team_admin", team_id=world.team.id)
    await grant(world, "member", "oidc:r", "oidc:w")

    async def status(binding_id: str, who: str) -> int:
        headers = world.session(who) | OWN_PAGE
        return (await world.client.get(path_of(binding_id), headers=headers)).status_code

    assert await status(envelope, "team_admin") == 403
    assert await status(team, "team_admin") == 200
    assert await status(envelope, "auditor") == 403
    assert await status(envelope, "stranger") == 403
    page = await see(world, path_of(team), "team_admin")
    assert (await press(world, page.html, REPLACE, "team_admin")).status_code == 303
