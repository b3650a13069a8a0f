"""The pages of past installs that new advisories and deny rules affect."""

from urllib.parse import quote

from analytics.model.envelopes import BlocklistHit
from tests.conftest import World
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.packages.retro.test_matcher import HEX, deny, installed
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
    assert f"{ORG}/affected/MAL-1" in links
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


async def test_the_page_of_an_advisory_says_who_got_what_from_which_job(world: World):
    run = {"run_id": "77", "repository_id": "1", "subject": "repo:acme/app", "file_sha256": HEX}
    await installed(world, "npm:evil@1.0.0", **run)
    await installed(world, "npm:evil@2.0.0", "npm:other@1.0.0")
    await import_records(world, osv_record("MAL-1", "evil"))

    page = await see(world, "affected/MAL-1", "owner")

    assert "2 installs" in page.html
    assert all(text in page.html for text in (HEX[:60], "not in the rows", "repo:acme/app"))
    links = {one.attributes["href"] for one in page.all("a")}
    assert f"{ORG}/packages?name=evil&ecosystem=npm&version=1.0.0" in links
    assert any(link.startswith(f"{ORG}/runs?run_id=77") for link in links)
    (export,) = (link for link in links if "format=csv" in link)
    rows = (
        await (await get(world, export.removeprefix(f"{ORG}/"), "owner")).get_data(as_text=True)
    ).splitlines()
    assert len(rows) == 3
    assert "other" not in "".join(rows)


async def test_files_that_no_filter_selects_are_exported_one_by_one(world: World):
    """An advisory on one file of two that have the same version."""
    await installed(world, "npm:evil@1.0.0", file_sha256=HEX)
    await installed(world, "npm:evil@1.0.0", file_sha256="cd" * 32)
    by_digest = osv_record("MAL-1", "evil", ranges=[])
    by_digest["affected"][0]["database_specific"] = {"package_integrity": {"sha256": HEX}}
    await import_records(world, by_digest)

    page = await see(world, "affected/MAL-1", "owner")

    assert "1 install<" in page.html
    assert not [one for one in page.all("a") if "format=csv" in one.attributes["href"]]


async def test_an_id_that_nothing_has_is_no_all_clear(world: World):
    assert "Nothing has this id now." in (await see(world, "affected/MAL-9")).html
    await import_records(world, osv_record("MAL-9", "absent"))
    assert "No past install is affected." in (await see(world, "affected/MAL-9")).html
    assert (await get(world, "affected/MAL-9", "member")).status_code == 403


async def test_rows_of_a_match_and_of_a_block_lead_to_its_page(world: World):
    await installed(world, "npm:evil@1.0.0")
    await installed(
        world, "npm:evil@1.0.0", envelope=BlocklistHit(rule_id="r/1 ?", source="operator")
    )
    await deny(world, {"package": "evil", "id": "r/1 ?"})
    await world.services.retro.match_due()

    for event in ("installs_matched", "blocklist_hit"):
        (row,) = await world.audit(event=event)
        page = await see(world, f"audit/{row['id']}", "auditor")
        links = {one.attributes["href"] for one in page.all("a")}
        assert f"{ORG}/affected/{quote('r/1 ?')}" in links
    assert "1 install<" in (await see(world, f"affected/{quote('r/1 ?')}", "auditor")).html


async def test_the_page_of_a_hostile_id_shows_it_as_text(world: World):
    page = await see(world, f"affected/{quote(HOSTILE)}")

    assert "<script>alert" not in page.html
    assert "&lt;script&gt;alert" in page.html
