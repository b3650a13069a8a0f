"""Who may see the pages and send their forms: members with org:admin, and no one else."""

import asyncio
from urllib.parse import urlencode

import pytest

from service.orgs.roles import set_role_override
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, grant
from tests.service.pages.page import FORM_TYPE, ORG, OWN_PAGE
from tests.service.pages.people.desk import get, logged, see

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = {
    "members": "Members",
    "teams": "Teams",
    "projects": "Projects",
    "keys": "API keys",
    "roles": "Roles",
}


async def test_the_navigation_leads_those_who_may(shared_world):
    page = await see(shared_world, "keys")
    theirs = await see(shared_world, "audit", "auditor")
    names = [link.text for link in page.all("a") if link.text in PAGES.values()]

    assert names == [name for name in PAGES.values() if name != "API keys"]
    assert page.one("h1").text == "API keys"
    assert not [link.text for link in theirs.all("a") if link.text in PAGES.values()]


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
