"""The page of past installs that new advisories and deny rules affect."""

from tests.conftest import World
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.packages.retro.test_matcher import deny, installed
from tests.service.pages.page import ORG
from tests.service.pages.people.desk import HOSTILE, get, see


async def test_without_a_match_the_page_says_what_will_be_here(world: World):
    page = await see(world, "affected", "auditor")

    assert "No past install is affected." in page.html
    assert (await get(world, "affected", "member")).status_code == 403


async def test_a_match_leads_to_its_row_and_to_who_got_each_package(world: World):
    await installed(world, "npm:@acme/evil@1.0.0", "pypi:bad@1.0.0")
    two = osv_record("MAL-1", "@acme/evil")
    two["affected"] += osv_record("MAL-1", "bad", "PyPI")["affected"]
    await import_records(world, two)
    await world.services.retro.match_due()

    page = await see(world, "affected", "auditor")
    (row,) = await world.audit(event="installs_matched")

    assert "MAL-1" in page.html
    links = {one.attributes["href"] for one in page.all("a")}
    assert f"{ORG}/packages?name=@acme/evil&ecosystem=npm" in links
    assert f"{ORG}/packages?name=bad&ecosystem=pypi" in links
    assert f"{ORG}/audit/{row['id']}" in links
    assert f"{ORG}/audit?event=installs_matched" in links


async def test_names_from_outside_are_text(world: World):
    """Rows of other proxies may have any name, and rules any id."""
    await installed(world, "npm:evil@1.0.0")
    await deny(world, {"package": "evil", "id": HOSTILE})
    await world.services.retro.match_due()

    page = await see(world, "affected")

    assert "<script>alert" not in page.html
    assert "&lt;script&gt;alert" in page.html
