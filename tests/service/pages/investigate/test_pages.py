"""The pages about one row, package and CI run."""

import pytest

from analytics.model.envelopes import BlocklistHit
from analytics.model.errors import StoreFault
from service.audit.refusals import QueryTooSlow
from tests.service.pages.page import AUDIT, ORG, add_install, fails, open_page

BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")
SUBJECT = "repo:acme/storefront:ref:refs/heads/main"


@pytest.fixture
async def incident(world):
    """A bad version that two jobs installed before it was blocked, and a good one."""
    job = {
        "actor_source": "oidc_github",
        "subject": SUBJECT,
        "repository_id": "412803377",
        "run_id": "1407",
        "ecosystem": "npm",
    }
    await add_install(world, package_name="event-stream", version="3.3.6", **job)
    await add_install(world, package_name="left-pad", version="1.3.0", **job)
    world.clock.advance(hours=1)
    await add_install(world, BLOCK, package_name="event-stream", version="3.3.6", **job)
    await add_install(world, package_name="event-stream", version="4.0.0", ecosystem="npm")
    return world


def cells(page):
    """The text of each line of the page's tables."""
    return [" ".join(row.text.split()) for row in page.all("tr", role="row")]


async def test_a_row_leads_to_all_rows_that_share_something_with_it(incident):
    (entry, *_) = await incident.audit(event="blocklist_hit")
    page = await open_page(incident, f"{AUDIT}/{entry['id']}")

    assert page.one("h1").text.strip() == "Blocked: denied"
    assert SUBJECT in page.one("main").text
    counts = {"This run": 3, "This CI job": 3, "This package": 3, "This event": 1}
    for label, rows in counts.items():
        link = page.link(f"{label} {rows}")
        assert link.startswith(f"{AUDIT}?")
        assert len((await open_page(incident, link)).row_ids) == rows
    assert entry["id"] in page.one("pre", **{"aria-label": "The row as JSON"}).text


async def test_a_run_at_the_provider_is_a_link(incident):
    (entry, *_) = await incident.audit(event="blocklist_hit")
    page = await open_page(incident, f"{AUDIT}/{entry['id']}")

    assert page.link("GitHub") == "https://github.com/acme/storefront/actions/runs/1407"


async def test_the_details_are_a_part_of_their_own_for_the_audit_page(incident):
    (entry, *_) = await incident.audit(event="blocklist_hit")
    response = await incident.client.get(
        f"{AUDIT}/{entry['id']}/details", headers=incident.session("auditor")
    )

    part = await response.get_data(as_text=True)
    assert "This run <strong>3</strong>" in part
    assert SUBJECT in part
    assert "<html" not in part


@pytest.mark.parametrize("path", ["aud_0000000000000999999", "aud_0000000000000999999/details"])
async def test_a_row_that_is_not_there_is_a_404(world, path):
    response = await world.client.get(f"{AUDIT}/{path}", headers=world.session("auditor"))

    assert response.status_code == 404


async def test_a_package_has_its_versions_and_who_used_them(incident):
    page = await open_page(incident, f"{ORG}/packages?name=event-stream")

    assert [line for line in cells(page) if line.startswith("npm")] == [
        "npm3.3.6 2 1 2026-03-04 12:00 2026-03-04 13:00",
        "npm4.0.0 1 – 2026-03-04 13:00 2026-03-04 13:00",
    ]
    assert any(line.startswith("acme/storefront · main 2 1") for line in cells(page))
    rows = await open_page(incident, page.link("3.3.6"))
    assert len(rows.row_ids) == 2


async def test_a_run_has_everything_it_asked_for(incident):
    page = await open_page(incident, f"{ORG}/runs?run_id=1407&repository_id=412803377")

    assert "acme/storefront · main" in page.one("dl").text
    assert [line for line in cells(page) if line.startswith("npm")] == [
        "npmevent-stream@3.3.6 2 1 2026-03-04 12:00 2026-03-04 13:00",
        "npmleft-pad@1.3.0 1 – 2026-03-04 12:00 2026-03-04 12:00",
    ]
    assert page.link("GitHub") == "https://github.com/acme/storefront/actions/runs/1407"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("packages?name=nothing", "No row has this package."),
        ("runs?run_id=9", "No row has this CI run."),
    ],
)
async def test_what_no_row_has_is_said(world, path, said):
    page = await open_page(world, f"{ORG}/{path}")

    assert said in page.one("main").text
    assert not page.all("table")


@pytest.mark.parametrize(
    "path", ["packages", "packages?name=", "packages?name=x&ecosystem=y", "runs"]
)
async def test_a_page_about_nothing_is_refused(world, path):
    response = await world.client.get(f"{ORG}/{path}", headers=world.session("auditor"))

    assert response.status_code == 400


@pytest.mark.parametrize(
    ("error", "said"),
    [(QueryTooSlow(), "too long to count"), (StoreFault("damage"), "missing or damaged")],
)
async def test_what_cannot_be_counted_is_said(incident, monkeypatch, error, said):
    fails(monkeypatch, "groups", error)
    page = await open_page(incident, f"{ORG}/packages?name=event-stream")

    assert said in page.one("main").text
