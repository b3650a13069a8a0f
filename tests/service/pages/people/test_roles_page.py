"""The roles page: what an organisation grants its roles, by those who have it themselves."""

from service.access.roles import Capability
from service.orgs.organisations import hold, set_tier
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, grant
from tests.service.pages.page import ORG, Page, send_form, shown
from tests.service.pages.people.desk import HOSTILE, get, logged, post, see

OWNERS_ALONE = frozenset(Capability) - {"audit:r", "audit:export", "alert:w"}
"""What no other role has by default."""


def ticks(page: Page, role: str) -> dict[str, bool]:
    """What can be granted to `role` on this page, and whether it is."""
    return {
        box.attributes["value"]: "checked" in box.attributes
        for box in page.all("input", type="checkbox", form=f"grant-{role}")
    }


async def test_defaults_are_marked_and_cannot_be_removed(world):
    page = await see(world, "roles")

    assert ticks(page, "owner") == {}
    assert ticks(page, "auditor") == dict.fromkeys(OWNERS_ALONE, False)
    assert ticks(page, "member") == dict.fromkeys(Capability, False)
    assert page.one("tr", id="auditor").text.count("by default") == 3


async def test_what_one_lacks_cannot_be_ticked(world):
    await grant(world, "admin", "org:admin")
    before = await logged(world)
    page = await see(world, "roles", "admin")
    answer = await post(world, "roles/member", "admin", before="", capability=["oidc:r"])

    assert set(ticks(page, "member")) == {"audit:r", "audit:export", "alert:w", "org:admin"}
    assert set(ticks(page, "admin")) == {"org:admin"}
    refusal = (await shown(answer, 403)).one("div", role="alert").text
    assert "Missing capability: oidc:r." in refusal
    assert await logged(world) == before


async def test_a_role_beyond_ones_own_has_no_form(world):
    await grant(world, "admin", "oidc:r")
    await grant(world, "auditor", "org:admin", "oidc:r")
    page = await see(world, "roles", "auditor")

    assert f"{ORG}/roles/admin" not in page.forms
    assert "✓ granted" in page.one("tr", id="admin").text


async def test_an_old_page_does_not_restore_a_revoked_grant(world):
    """Who saves sees what holds now, and decides again."""
    await grant(world, "admin", "oidc:w")
    old = await see(world, "roles")
    await grant(world, "admin", "audit:r")
    before = await logged(world)
    answer = await send_form(world, old, f"{ORG}/roles/admin", capability=["oidc:w", "oidc:r"])
    page = await shown(answer, 409)

    assert "The role was changed concurrently" in page.one("div", role="alert").text
    assert ticks(page, "admin") == dict.fromkeys(OWNERS_ALONE, False)
    assert await logged(world) == before


async def test_tier_and_hold_are_shown_with_who_changes_them(world):
    async with world.services.store.write() as work:
        org = await work.session.get_one(Organisation, world.acme.id)
        await set_tier(work, org, "team", BY_OPERATOR)
        await hold(work, org, HOSTILE, BY_OPERATOR)
    page = await see(world, "roles")
    section = page.one("section", **{"aria-labelledby": "organisation-title"})

    assert "for 30 days" in section.text
    assert HOSTILE in section.text
    assert "countersign org set-tier" in section.text
    assert not [action for action in page.forms if "tier" in action or "hold" in action]
    assert (await get(world, "roles", "auditor")).status_code == 403
