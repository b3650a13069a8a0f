"""Who may see the pages and send their forms: members with org:admin, and no one else."""

import asyncio
from urllib.parse import urlencode

import pytest

from service.orgs.roles import set_role_override
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, World, grant
from tests.service.pages.page import FORM_TYPE, ORG, OWN_PAGE
from tests.service.pages.people.desk import get, logged, post, see, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = {
    "members": "Members",
    "teams": "Teams",
    "projects": "Projects",
    "keys": "API keys",
    "roles": "Roles",
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("who", ["admin", "auditor", "member", "team_admin", "stranger"])
async def test_no_one_else_sees_a_page(shared_world, page, who):
    answer = await get(shared_world, page, who)

    refusal = (await shown(answer, 403)).one("div", role="alert").text
    assert "Missing capability: org:admin." in refusal


async def test_the_navigation_leads_those_who_may(shared_world):
    page = await see(shared_world, "keys")
    theirs = await see(shared_world, "audit", "auditor")
    names = [link.text for link in page.all("a") if link.text in PAGES.values()]

    assert names == list(PAGES.values())
    assert page.one("a", **{"aria-current": "page"}).text == "API keys"
    assert not [link.text for link in theirs.all("a") if link.text in PAGES.values()]


async def all_forms(world: World) -> dict[str, dict[str, str]]:
    """Every form that an owner is shown, with what it sends along unseen."""
    assert (await post(world, "keys", name="one", project="", scopes="audit:r")).status_code in {
        200,
        409,
    }
    forms: dict[str, dict[str, str]] = {}
    for page in PAGES:
        forms |= (await see(world, page)).forms
    return {action: form for action, form in forms.items() if action.startswith(ORG)}


@pytest.mark.parametrize("how", ["auditor", "stranger", "no token", "other site", "signed out"])
async def test_no_one_else_sends_a_form(shared_world, how):
    forms = await all_forms(shared_world)
    assert {action.split("/")[5] for action in forms} == set(PAGES)
    before = await logged(shared_world)
    for action, form in forms.items():
        fields = {name: text for name, text in form.items() if how != "no token" or name != "csrf"}
        who = how if how in shared_world.cookies else "owner"
        headers = OWN_PAGE | ({} if how == "signed out" else shared_world.session(who))
        if how == "other site":
            headers |= {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        answer = await shared_world.client.post(action, form=fields, headers=headers)
        assert answer.status_code == (401 if how == "signed out" else 403), action

    assert await logged(shared_world) == before


async def test_what_is_shown_is_not_cached(shared_world):
    for page in PAGES:
        assert (await get(shared_world, page)).headers["cache-control"] == "no-store"


@pytest.mark.asyncio(loop_scope="function")
async def test_rights_lost_before_the_form_ended_are_lost(world):
    """A form can arrive slowly; the rights at the commit count."""
    await grant(world, "admin", "org:admin")
    csrf = (await see(world, "teams", "admin")).forms[f"{ORG}/teams"]["csrf"]
    body = urlencode({"name": "late", "csrf": csrf}).encode()
    connection = world.client.request(
        f"{ORG}/teams",
        method="POST",
        headers=world.session("admin") | OWN_PAGE | {"content-type": FORM_TYPE},
    )
    async with connection:
        await connection.send(body[:5])
        await asyncio.sleep(0.2)  # long enough to be let in; if not, it is refused all the same
        async with world.services.store.write() as work:
            org = await work.session.get_one(Organisation, world.acme.id)
            await set_role_override(work, org, "admin", [], BY_OPERATOR)
        before = await logged(world)
        await connection.send(body[5:])
        await connection.send_complete()
    answer = await connection.as_response()

    assert answer.status_code == 403
    assert await logged(world) == before
