"""The exports pages: the list, one export with its receipt, and what an export would hold."""

import hashlib
from datetime import timedelta

import pytest

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.filters import parse_query
from service.audit.export_entries import SILENT_AFTER
from service.pages import exports
from service.pages.display_names import Names
from service.store.journal import append
from service.store.tables import Organisation
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, World, grant
from tests.service.pages.page import ORG, Page, shown
from tests.service.pages.people.desk import get, see

NAMES = ["left-pad", "@acme/payments", "@babel/core", "'quoted"]


async def fill(world: World) -> None:
    """A row for each of NAMES."""
    rows = [
        sample_row(START - timedelta(hours=number), package_name=name)
        for number, name in enumerate(NAMES)
    ]
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, rows, now=work.now)


async def export(world: World, who: str = "auditor", **query: str) -> tuple[str, bytes]:
    response = await world.client.get(
        f"{ORG}/audit/export",
        headers=world.session(who),
        query_string={"format": "csv"} | query,
    )
    assert response.status_code == 200
    content = await response.get_data()
    await world.services.exporter.drain()
    return response.headers["x-export-id"], content


async def start(world: World):
    """An export that is under way: itself and its stream."""
    exporter, form = world.services.exporter, FileEncoding(ExportFormat.CSV)
    export = await exporter.prepare(world.acme, parse_query({}), form, BY_OPERATOR, world.clock())
    return export, await exporter.stream(export)


def facts(page: Page) -> dict[str, str]:
    """The terms of the page and what is said of them."""
    terms, said = page.all("dt"), page.all("dd")
    return {term.text: " ".join(one.text.split()) for term, one in zip(terms, said, strict=True)}


async def test_the_list_says_who_exported_which_rows(world):
    await fill(world)
    export_id, content = await export(world, package="!left-pad", event="blocklist_hit")
    page = await see(world, "exports", "auditor")

    row = " ".join(page.one("tr", id=export_id).text.split())
    for words in (
        "auditor@acme.example",
        "Event is Blocked: denied, Package is not left-pad",
        "from 2025-03-04 12:00:00 (the retention floor) to the last",
        "CSV",
        f"{len(content):,} ",
        "finished",
    ):
        assert words in row
    assert page.one("h1").text == "Exports"


async def test_an_export_shows_its_receipt_and_how_to_compare_without_scripts(world):
    await fill(world)
    export_id, content = await export(world)
    page = await see(world, f"exports/{export_id}", "auditor")
    digest = hashlib.sha256(content).hexdigest()

    said = facts(page)
    assert said["SHA-256"] == digest
    assert said["Bytes"] == f"{len(content):,}"
    assert said["Rows with"] == "all rows"
    assert said["Retention floor"].startswith("2025-03-04 12:00:00: older rows are not")
    assert "hidden" in page.one("div", **{"data-sha256": digest}).attributes
    codes = [code.text for code in page.all("code")]
    assert f"sha256sum {said['File name']}" in codes
    receipt = page.one("a", download=f"{said['File name']}.receipt.json").attributes["href"]
    answer = await world.client.get(receipt, headers=world.session("auditor"))
    assert (await answer.get_json())["sha256"] == digest
    assert page.scripts[-2:] == ["/static/verify_export.js", "/static/prove.js"]


async def test_a_running_export_shows_how_far_it_is(world):
    await fill(world)
    running, stream = await start(world)
    page = await see(world, f"exports/{running.export_id}", "auditor")
    total = str(running.rows)

    assert page.one("progress").attributes["max"] == total
    assert page.scripts[-1] == "/static/export_progress.js"
    assert not page.all("a", download=True)
    where = page.all("section")[0].attributes["data-progress"]
    answer = await world.client.get(where, headers=world.session("auditor"))
    assert await answer.get_json() == {"state": "running", "rows": running.rows, "sent_rows": 0}
    listed = await see(world, "exports", "auditor")
    assert f"0 of {total}" in listed.one("tr", id=running.export_id).text
    await stream.aclose()


async def test_asking_for_progress_does_not_keep_a_session_alive(world):
    """A page left open must not hold a session open."""
    export_id, _ = await export(world)
    path = f"{ORG}/exports/{export_id}/progress"
    session = world.session("auditor")
    for _ in range(3):
        world.clock.advance(seconds=world.services.settings.session_idle_s / 2 - 1)
        answer = await world.client.get(path, headers=session)

    assert answer.status_code == 401


async def test_a_broken_export_warns_of_its_file(world):
    broken, stream = await start(world)
    world.services.exporter._progress.remove(broken.export_id)
    world.clock.advance(seconds=SILENT_AFTER.total_seconds())
    page = await see(world, f"exports/{broken.export_id}", "auditor")

    assert "its file is incomplete" in page.one("div", role="alert").text
    assert not page.all("div", **{"data-verify": ""})
    await stream.aclose()


async def test_older_exports_are_on_later_pages(world, monkeypatch):
    monkeypatch.setattr(exports, "ROWS", 1)
    first, _ = await export(world)
    world.clock.advance(seconds=1)
    second, _ = await export(world)
    page = await see(world, "exports", "auditor")
    older = page.one("a", rel="next").attributes["href"].removeprefix(f"{ORG}/")

    assert page.row_ids == [second]
    last = await see(world, older, "auditor")
    assert last.row_ids == [first]
    assert not last.all("a", rel="next")
    assert last.all("a", href=f"{ORG}/exports")


async def test_an_offer_says_what_the_file_will_hold(world):
    await fill(world)
    page = await see(world, "exports/new?event=blocklist_hit&since=2020-01-01", "auditor")
    said = facts(page)

    assert said["Rows with"] == "Event is Blocked: denied"
    assert said["Window"] == "from 2025-03-04 12:00:00 (the retention floor) to the last"
    assert said["Rows now"] == "4"
    warnings = [one.text for one in page.all("div", role="status")]
    assert any("before the retention floor are not in the file" in text for text in warnings)
    assert any("package names of 3 rows are changed" in text for text in warnings)
    links = [one.attributes["href"] for one in page.all("a", **{"class": "button"})]
    raw = next(link for link in links if "raw=1" in link)
    answer = await world.client.get(raw, headers=world.session("auditor"))
    assert b",@babel/core," in await answer.get_data()
    assert "event=blocklist_hit" in raw
    assert len(await world.audit(event="audit_exported")) == 1


async def test_an_offer_without_guarded_names_says_nothing_of_them(world):
    await fill(world)
    page = await see(world, "exports/new?package=left-pad", "auditor")

    assert facts(page)["Rows now"] == "1"
    assert "package names" not in page.one("main").text


async def test_the_audit_page_leads_to_the_offer(world):
    await fill(world)
    page = await see(world, "audit?package=left-pad&last=24h", "auditor")
    (link,) = [one for one in page.all("a") if one.text.startswith("What the file will hold")]

    offer = await see(world, link.attributes["href"].removeprefix(f"{ORG}/"), "auditor")
    assert facts(offer)["Rows with"] == "Package is left-pad"
    assert facts(offer)["Rows now"] == "1"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("exports/exp_none", 404),
        ("exports/exp_none/progress", 404),
        ("exports?cursor=exp_none", 400),
        ("exports?state=x", 400),
        ("exports/new?event=nosuch", 400),
        ("exports/new?last=3y", 400),
    ],
)
async def test_what_is_not_there_or_not_understood_is_refused(world, path, status):
    answer = await get(world, path, "auditor")

    assert answer.status_code == status


async def test_only_those_who_may_get_there(world):
    export_id, _ = await export(world)
    for path in ("exports", f"exports/{export_id}", "exports/new"):
        assert (await get(world, path, "member")).status_code == 403
        assert (await get(world, path, "stranger")).status_code == 403
    await grant(world, "member", "audit:r")
    assert (await get(world, "exports", "member")).status_code == 200
    assert (await get(world, "exports/new", "member")).status_code == 403


async def test_exports_of_another_organisation_are_not_found(world):
    export_id, _ = await export(world)
    theirs = f"/admin/ui/orgs/other/exports/{export_id}"
    answer = await world.client.get(theirs, headers=world.session("stranger"))

    assert answer.status_code == 404
    listed = await world.client.get("/admin/ui/orgs/other/exports", headers=world.admin)
    assert "There are no exports yet" in (await shown(listed)).html


async def test_an_unlimited_tier_has_no_floor(world):
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        acme.tier = "enterprise"
    export_id, _ = await export(world)

    for path in ("exports/new", f"exports/{export_id}"):
        said = facts(await see(world, path, "auditor"))
        assert said["Retention floor"].startswith("none: this tier keeps rows permanently")
        assert said["Window"].startswith("from the first row to the last")


def test_filters_are_words():
    names = Names(actors={"mem_1": "ada@acme.example"})
    assert exports.filter_words({"order": ["asc"], "since": ["2026-01-01"]}, names) == []
    assert exports.filter_words({"package": ["!@acme/*"], "subject": ["mem_1"]}, names) == [
        "Package does not begin with @acme/",
        "Subject is ada@acme.example",
    ]
