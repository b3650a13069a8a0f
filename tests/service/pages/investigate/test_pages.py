"""The pages about one row, package and CI run."""

import random
import re
from datetime import timedelta

import pytest

from analytics.model.envelopes import BlocklistHit
from analytics.model.errors import StoreFault
from service.audit.refusals import QueryTooSlow
from service.store.journal import append
from tests.analytics.samples import sample_row
from tests.conftest import grant
from tests.service.packages.attestations.rows import admit
from tests.service.pages.page import (
    AUDIT,
    ORG,
    add_install,
    fails,
    open_page,
    press,
    send_form,
    shown,
)

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


async def test_an_admitted_package_leads_to_its_signed_statement(incident):
    await admit(incident.services)
    (admitted, *_) = await incident.audit(event="install_allowed", package="left-pad")
    page = await open_page(incident, f"{AUDIT}/{admitted['id']}")

    assert (
        "from https://registry.npmjs.org/: no rule is against it (revision 1 of the policy, no"
        " blocklist)."
    ) in " ".join(page.one("main").text.split())
    answer = await incident.client.get(
        page.link("Signed statement"), headers=incident.session("auditor")
    )
    assert (await answer.get_json())["payloadType"] == "application/vnd.in-toto+json"


async def test_the_row_of_another_install_has_no_statement(incident):
    (entry, *_) = await incident.audit(event="blocklist_hit")
    page = await open_page(incident, f"{AUDIT}/{entry['id']}")

    assert "Signed statement" not in page.one("main").text


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


def words(page):
    return " ".join(page.one("main").text.split())


def through(page):
    """The lines of the list of installs that got through."""
    return [line for line in cells(page) if re.search(r" \d\.\d\.\d key_1 ", line)]


async def test_a_package_says_who_got_it(incident):
    page = await open_page(incident, f"{ORG}/packages?name=event-stream")

    assert "Let through2 installs of 2 versions" in words(page)
    assert "Blocked1" in words(page)
    assert "Reached1 CI jobs or subjects, by 1 keys and people" in words(page)
    assert "First and last2026-03-04 12:00 to 2026-03-04 13:00 UTC" in words(page)
    assert "npm 3.3.6 1 through, 1 blocked" in words(page)
    assert "npm 4.0.0 1 through, 0 blocked" in words(page)
    assert through(page) == [
        "no CI job 4.0.0 key_1 2026-03-04 13:00",
        "acme/storefront · main 3.3.6 key_1 1407 GitHub 2026-03-04 12:00",
    ]
    assert any(line.startswith("acme/storefront · main 2 1") for line in cells(page))
    rows = await open_page(incident, page.link("3.3.6"))
    assert len(rows.row_ids) == 2


async def test_a_version_has_its_own_installs_and_the_list_of_them(incident):
    """From a row's details, as a list of who got it that an auditor may keep."""
    (entry, *_) = await incident.audit(event="blocklist_hit")
    row = await open_page(incident, f"{AUDIT}/{entry['id']}")
    page = await open_page(incident, row.link("3.3.6: who got this version"))
    file = await incident.client.get(
        page.link("List of who got it (CSV)"), headers=incident.session("auditor")
    )

    assert len(through(page)) == 1
    lines = (await file.get_data(as_text=True)).splitlines()
    assert len(lines) == 2
    assert "event-stream,3.3.6,ALLOWED" in lines[1]


async def test_a_search_for_one_package_offers_its_page(incident):
    for query, said in (
        ("package=event-stream&version=3.3.6", "Who got event-stream 3.3.6"),
        ("package=event-stream", "Who got event-stream"),
    ):
        log = await open_page(incident, f"?{query}")
        (link,) = [one for one in log.all("a") if one.text.strip() == said]
        page = await open_page(incident, link.attributes["href"])
        assert page.one("h1").text.startswith("event-stream")
    for query in ("", "?package=event-*", "?package=!event-stream", "?package=a&package=b"):
        assert "Who got" not in (await open_page(incident, f"{AUDIT}{query}")).html


async def test_figures_are_those_of_all_rows_by_brute_force(world):
    draw, rows = random.Random(7), []
    for _ in range(300):
        event = draw.choice(["install_allowed", "blocklist_hit", "policy_exception_requested"])
        rows.append(
            sample_row(
                world.clock.now - timedelta(hours=draw.uniform(0, 900)),
                event=event,
                decision={"install_allowed": "ALLOWED", "blocklist_hit": "BLOCKED"}.get(event),
                package_name=draw.choice(["pad", "other"]),
                version=draw.choice(["1", "2", "3"]),
                ecosystem="npm",
                subject=draw.choice([None, "repo:a/a:x", "repo:b/b:x", "repo:b@7/b@9:x"]),
                actor=draw.choice(["key_1", "key_2"]),
            )
        )
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, rows, now=world.clock.now)
    shown = words(await open_page(world, f"{ORG}/packages?name=pad"))

    def counted(decision, **values):
        return [
            row
            for row in rows
            if (row.package_name, row.decision) == ("pad", decision)
            and all(getattr(row, name) == value for name, value in values.items())
        ]

    through, blocked = counted("ALLOWED"), counted("BLOCKED")
    times = sorted(f"{row.created_at:%Y-%m-%d %H:%M}" for row in through + blocked)
    assert f"Let through{len(through)} installs of 3 versions" in shown
    assert f"Blocked{len(blocked)}" in shown
    assert "Reached2 CI jobs or subjects, by 2 keys and people" in shown
    assert f"First and last{times[0]} to {times[-1]} UTC" in shown
    for version in "123":
        numbers = [len(counted(each, version=version)) for each in ("ALLOWED", "BLOCKED")]
        assert f"npm {version} {numbers[0]} through, {numbers[1]} blocked" in shown


async def test_another_organisations_installs_are_no_part_of_it(incident):
    page = await open_page(
        incident,
        "/admin/ui/orgs/other/packages?name=event-stream",
        **incident.session("stranger"),
    )

    assert "No install of this package." in words(page)


async def test_a_version_is_blocked_from_the_page_by_way_of_its_preview(incident):
    """By a rule whose effect is shown before it is saved."""
    path = f"{ORG}/packages?name=event-stream&version=4.0.0"
    page = await open_page(incident, path, **incident.session("owner"))
    assert words(page).count("still allowed") == 2
    preview = await shown(await press(incident, page.html, "Preview the block…", reason="INC-1"))
    assert "deny-event-stream" in preview.html or "event-stream" in preview.html
    assert "this would have blocked 1 install" in words(preview)
    answer = await press(incident, preview.html, "Save the policy")
    assert answer.status_code == 303

    page = await open_page(incident, path, **incident.session("owner"))
    assert words(page).count("blocked now denied by rule") == 1
    assert words(page).count("still allowed") == 1


async def test_what_the_policy_says_is_for_those_who_may_read_it(incident):
    """And blocking for those who may change it."""
    path = f"{ORG}/packages?name=event-stream"
    auditor = await open_page(incident, path)
    assert "still allowed" not in words(auditor)
    assert not [action for action in auditor.forms if "policy" in action]
    await grant(incident, "auditor", "policy:r")
    reader = await open_page(incident, path)
    assert "still allowed" in words(reader)
    assert "Members with policy:w, owners by default, can block versions here." in words(reader)
    assert not [action for action in reader.forms if "policy" in action]


async def test_a_request_for_an_exception_and_the_package_lead_to_each_other(incident):
    new = f"{ORG}/policy/exceptions/new"
    asked = {"ecosystem": "npm", "package": "event-stream", "version": "4.0.0", "reason": "a fix"}
    form = await open_page(incident, new, **incident.session("member"))
    await send_form(incident, form, new, "member", **asked)
    page = await open_page(
        incident, f"{ORG}/packages?name=event-stream", **incident.session("owner")
    )
    requests = await open_page(
        incident, page.link("a fix").partition("#")[0], **incident.session("owner")
    )

    assert "An exception for 4.0.0 is requested" in words(page)
    (back,) = [
        one.attributes["href"]
        for one in requests.all("a")
        if one.text.startswith("who installed this package")
    ]
    assert back.startswith(f"{ORG}/packages?name=event-stream")


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
        ("packages?name=nothing", "No install of this package."),
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
