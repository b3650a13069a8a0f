"""The reports pages: views of the audit log, and who could do what as of a date."""

from dataclasses import replace

import pytest

from analytics.model.envelopes import (
    EVENTS,
    ArtifactChanged,
    BlocklistHit,
    CooldownActive,
    InstallAllowed,
    InstallCut,
    InstallWouldBlock,
    OssFirstParty,
    ReleaseWithdrawn,
    TrustDowngraded,
)
from analytics.model.log_envelopes import AuditRead
from analytics.model.org_envelopes import OrgCreated, ProjectCreated
from service.audit.evidence.clauses import CLAUSES
from service.orgs.api_keys import issue_api_key
from service.orgs.members import remove_member
from service.pages import reports
from service.pages.reports import RIGHTS, SIGN_INS, VIEWS
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, START
from tests.service.audit.evidence.proving import take_in
from tests.service.pages.page import ORG, Page, send_form
from tests.service.pages.people.desk import actor, fault_of, get, leads_to, see


def links(page: Page, words: str) -> list[str]:
    """Where the links go whose text begins so, without the organisation's path."""
    return [
        one.attributes["href"].removeprefix(f"{ORG}/")
        for one in page.all("a")
        if one.text.startswith(words)
    ]


async def test_each_view_is_a_link_that_the_audit_page_understands(world):
    """A view whose filter is misspelt would be a 400."""
    page = await see(world, "reports", "auditor")

    for view in VIEWS:
        (link,) = links(page, view.label)[:1]
        assert (await get(world, link, "auditor")).status_code == 200, view.label
    assert page.one("h1").text == "Reports"


def test_the_views_name_the_events_that_they_promise():
    """An event about rights or sign-ins that is added must come into a view."""
    viewed = {event for view in VIEWS for event in view.events}

    installs = {
        OssFirstParty.event,
        InstallAllowed.event,
        BlocklistHit.event,
        CooldownActive.event,
        InstallWouldBlock.event,
        InstallCut.event,
        ArtifactChanged.event,
        TrustDowngraded.event,
        ReleaseWithdrawn.event,
    }
    neither = installs | {OrgCreated.event, ProjectCreated.event}
    assert set(EVENTS) - viewed == neither
    assert set(SIGN_INS) & set(RIGHTS) == set()


async def test_members_link_to_their_rows_and_sign_ins(world):
    member = world.members["auditor"]
    for path, who in (("reports/access", "auditor"), ("members", "owner")):
        page = await see(world, path, who)
        (did,) = links(page, f"What they did: rows of {member.email}")
        (about,) = links(page, f"What was done about them: rows about {member.email}")
        (signed_in,) = links(page, f"Their sign-ins of {member.email}")

        assert did == f"audit?actor={actor(world, 'auditor')}"
        assert about == f"audit?subject={member.id}"
        assert (await get(world, signed_in, "auditor")).status_code == 200


async def test_the_first_of_many_lines_are_shown(world, monkeypatch):
    """The files have all; a page of 10,000 lines of each kind took 26 MB."""
    monkeypatch.setattr(reports, "ROWS_MAX", 2)
    page = await see(world, "reports/access", "auditor")
    first, second, *_ = sorted(member.email for member in world.members.values())[:5]

    assert len([row for row in page.all("tr") if row.attributes.get("id", "").startswith("m")]) == 2
    assert first in page.html
    assert second in page.html
    assert "the first 2 of 5: the CSV and JSON files have all" in page.one("main").text


async def test_the_report_shows_the_past(world):
    await world.create()
    async with world.services.store.write() as work:
        await issue_api_key(
            work, world.acme, "proxy", world.project, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    world.clock.advance(days=2)
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        member = await work.session.merge(world.members["team_admin"])
        await remove_member(work, acme, member, BY_OPERATOR)
    headers = world.admin
    answer = await world.client.get(f"{ORG}/reports/access?asOf=2026-03-05", headers=headers)
    page = Page(await answer.get_data(as_text=True))
    row = " ".join(page.one("tr", id=world.members["team_admin"].id).text.split())

    assert answer.status_code == 200
    assert "team_admin@acme.example member none platform" in row
    assert "since then: removed 2026-03-06 12:00" in row
    assert "API keys (1)" in page.html
    assert "project payments" in page.one("main").text
    assert "repo:acme/payments:ref:refs/heads/main" in page.html
    (download,) = links(page, "CSV")
    report = await world.client.get(download, headers=headers)
    assert "team_admin@acme.example" in await report.get_data(as_text=True)
    now = await world.client.get(f"{ORG}/reports/access", headers=headers)
    assert world.members["team_admin"].id not in await now.get_data(as_text=True)


async def test_a_part_that_is_of_a_later_date_is_said(world):
    world.clock.advance(days=400)
    answer = await world.client.get(
        f"{ORG}/reports/access?asOf={START:%Y-%m-%d}T13:00:00Z", headers=world.admin
    )
    page = Page(await answer.get_data(as_text=True))

    assert "A part of this report is of a later date" in page.one("div", role="status").text


@pytest.mark.parametrize(
    ("typed", "shown", "text"),
    [
        ("yesterday", "yesterday", "asOf must be a date or an RFC 3339 instant"),
        ("2027-01-01", "2027-01-01T00:00", "asOf must not be in the future"),
        ("2027-01-01T08:30", "2027-01-01T08:30", "asOf must not be in the future"),
        ("2020-01-01", "2020-01-01T00:00", "asOf is before the organisation was created"),
    ],
)
async def test_a_date_that_is_none_is_said_at_its_field(world, typed, shown, text):
    answer = await get(world, f"reports/access?asOf={typed}", "auditor")
    page = Page(await answer.get_data(as_text=True))

    assert answer.status_code == 400
    field = page.one("input", id="access-asOf")
    assert field.attributes["value"] == shown
    assert page.one("p", id=field.attributes["aria-describedby"]).text.startswith(text)


async def recorded_review(world, **typed):
    window = {"since": f"{START:%Y-%m-%d}T00:00", "until": f"{START:%Y-%m-%dT%H:%M}"}
    page = await see(world, "reports/evidence", "auditor")
    return await send_form(world, page, f"{ORG}/reports/evidence", "auditor", **window | typed)


async def test_the_evidence_is_shown_beside_each_clause(world):
    """As of now: what changes meanwhile is on the page at its next load."""
    page = await see(world, "reports/evidence", "auditor")
    assert page.one("h1").text == "Evidence for auditors"
    for clause in CLAUSES:
        assert clause.asks in page.one("main").text
    assert "none is signed yet" in page.one("main").text
    assert "Reads are not recorded" in page.one("main").text

    await take_in(world.services)
    async with world.services.store.write() as work:
        read = AuditRead(hour="2026-01-01T00:00:00Z", kind="page")
        work.record(world.acme.id, read, replace(BY_OPERATOR, actor=actor(world, "owner")))
    page = await see(world, "reports/evidence", "auditor")
    assert "none is signed yet" not in page.one("main").text
    assert world.members["owner"].email in page.one("main").text
    assert links(page, "Log read") == [f"audit?actor={actor(world, 'owner')}&event=audit_read"]


async def test_a_review_is_recorded_with_a_form_and_listed(world):
    answer = await recorded_review(world, note="all expected")
    assert leads_to(answer) == f"{ORG}/reports/evidence?done=reviewed"
    (row,) = await world.audit(event="audit_reviewed")
    assert row["actor"] == actor(world, "auditor")
    assert row["payload"]["since"] == f"{START:%Y-%m-%d}T00:00:00.000000Z"

    page = await see(world, "reports/evidence?done=reviewed", "auditor")
    assert "The review was recorded." in page.one("main").text
    assert "all expected" in page.one("main").text
    assert links(page, START.strftime("%Y-%m-%d")) == [f"audit/{row['id']}"]


@pytest.mark.parametrize(
    ("typed", "field", "text"),
    [
        ({"since": ""}, "review-since", "must not be empty"),
        ({"until": "2099-01-01T00:00"}, "review-until", "must not be in the future"),
        ({"note": "x" * 2_000}, "review-note", "at most 1024"),
    ],
)
async def test_what_is_wrong_with_a_review_is_said_at_its_field(world, typed, field, text):
    answer = await recorded_review(world, **typed)
    page = Page(await answer.get_data(as_text=True))
    assert answer.status_code == 400
    assert text in fault_of(page, field)
    assert await world.audit(event="audit_reviewed") == []
