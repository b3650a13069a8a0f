"""The page that answers whether a release would be allowed, and why."""

from urllib.parse import urlencode

import pytest

from service.packages.policy.document import DOCUMENT_EXAMPLE
from tests.conftest import World, grant
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load
from tests.service.pages.page import Page, add_install, shown
from tests.service.pages.people.desk import HOSTILE, fault_of, get, see
from tests.service.pages.policy.desk import POLICY, put


async def check(world: World, who: str = "owner", status: int = 200, **given: str) -> Page:
    query = urlencode({"ecosystem": "npm", "version": ""} | given)
    return await shown(await get(world, f"policy/check?{query}", who), status)


def verdict(page: Page) -> str:
    return page.one("div", role="status").text


@pytest.mark.parametrize(
    ("given", "title", "place"),
    [
        ({"package": "left-pad@1.2.0"}, "Blocked: left-pad 1.2.0 (npm)", "deny-0"),
        ({"package": "@acme/x", "version": "1.0.0"}, "Not from a public registry", "first-party"),
        ({"package": "lodash", "version": "4.0.0"}, "It depends on its age", "cooldown"),
        (
            {"package": "lodash", "version": "4", "published_at": "2020-01-01T00:00:00Z"},
            "Allowed: lodash 4 (npm)",
            None,
        ),
        (
            {"ecosystem": "pypi", "package": "requests==2.32.3"},
            "Allowed: requests 2.32.3 (PyPI)",
            "allow-0",
        ),
    ],
)
async def test_the_answer_names_the_rule_and_leads_to_it(world: World, given, title, place):
    await put(world, DOCUMENT_EXAMPLE)
    page = await check(world, **given)

    assert title in verdict(page)
    links = [one.attributes["href"] for one in page.all("a") if "#" in one.attributes["href"]]
    assert [link for link in links if link.startswith(POLICY)] == (
        [f"{POLICY}#{place}"] if place else []
    )
    if place and place != "cooldown":
        assert f'id="{place}"' in (await see(world, "policy")).html


async def test_the_operators_blocklist_is_named(world: World):
    await load(world.services.store, osv_zip([osv_record("MAL-2026-1")]))
    page = await check(world, package="evil", version="1.0.0")

    assert "MAL-2026-1" in verdict(page)
    assert page.link("Open the rule MAL-2026-1") == f"{POLICY}#blocklist"


async def test_in_audit_mode_it_would_be_served(world: World):
    await put(world, DOCUMENT_EXAMPLE | {"mode": "audit"})

    assert "Blocked, but served" in verdict(await check(world, package="left-pad@1.2.0"))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"package": ""}, "package"),
        ({"package": HOSTILE, "version": "1"}, "package"),
        ({"package": "left-pad"}, "version"),
        ({"ecosystem": "cargo", "package": "x", "version": "1"}, "ecosystem"),
        ({"package": "x", "version": "1", "published_at": "soon"}, "published_at"),
    ],
)
async def test_what_cannot_be_asked_is_said_at_its_field(world: World, given, field):
    page = await check(world, status=400, **given)

    assert fault_of(page, f"check-{field}")
    if "package" in given:
        assert page.one("input", id="check-package").attributes["value"] == given["package"].strip()


async def test_without_a_version_in_the_address_it_only_asks(world: World):
    answer = await get(world, "policy/check?ecosystem=npm&package=left-pad")
    page = await shown(answer)

    assert page.one("input", id="check-package").attributes["value"] == "left-pad"
    assert page.all("div", role="status") == []
    assert (await get(world, "policy/check?nothing=1")).status_code == 400


async def test_a_packages_page_leads_to_the_question(world: World):
    await add_install(world, package_name="left-pad", version="1.0.0", ecosystem="npm")
    page = await see(world, "packages?name=left-pad")

    assert page.link("Would it be allowed?") == (f"{POLICY}/check?ecosystem=npm&package=left-pad")
    assert "/policy" not in (await see(world, "packages?name=left-pad", "auditor")).html


async def test_nothing_is_recorded(world: World):
    await grant(world, "auditor", "policy:r")
    before = await world.audit()
    await check(world, "auditor", package="left-pad@1.2.0")

    assert await world.audit() == before
    assert (await get(world, "policy/check", "member")).status_code == 403
