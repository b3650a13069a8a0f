"""The list of bindings as a browser without scripts receives it."""

import re
from urllib.parse import parse_qs

import pytest
from sqlalchemy import event, update

from service.store.tables import Binding
from service.trust.bindings import listing
from tests.conftest import grant
from tests.service.pages.page import AUDIT, SCRIPTS, open_page, shown
from tests.service.pages.trust.pages import (
    BINDINGS,
    HOSTILE_SUB,
    SUB,
    add_team,
    cells,
    see,
    subjects_of,
)


async def test_a_row_answers_who_trusted_what_how_far_and_how_often(world):
    """Ids that people know by a name are shown by it."""
    await world.bind(
        headers=world.session("owner"), project_id=world.project.id, event_names=["push"]
    )
    page = await see(world)

    assert subjects_of(page) == [SUB]
    assert cells(page, "CI job") == ["acme/payments · main"]
    assert cells(page, "Started by") == ["push"]
    assert cells(page, "May act for") == ["project payments"]
    assert cells(page, "Added") == ["2026-03-04 12:00"]
    assert cells(page, "Added by") == ["owner@acme.example"]
    assert cells(page, "Status") == ["✓ active"]
    assert cells(page, "Last used") == [""]


async def test_an_actor_that_is_no_member_here_keeps_its_own_name(world):
    await world.bind()
    foreign = f"github:{world.members['stranger'].id}"
    assert cells(await see(world), "Added by") == ["system:admin-token"]

    async with world.services.store.write() as work:
        await work.session.execute(update(Binding).values(added_by=foreign))
    page = await see(world)
    assert cells(page, "Added by") == [foreign]
    assert "stranger@" not in page.html


async def test_a_team_binding_names_its_team_and_says_when_its_envelope_is_gone(world):
    """It is active by its row and trusted by no rule: the list must not hide that."""
    envelope = await world.bind()
    await world.bind(origin="team_admin", team_id=world.team.id)
    before = await see(world)
    await world.revoke(envelope)
    after = await see(world)

    assert sum("team platform" in text for text in cells(before, "May act for")) == 1
    assert "Matches no token" not in before.html
    assert cells(after, "Status").count("✕ no effect") == 1
    assert after.html.count("Matches no token") == 1


async def test_a_revoked_binding_says_by_whom_and_why(world):
    await world.revoke(await world.bind(), "left the company")

    page = await see(world)
    (badge,) = page.all("span", **{"class": "badge"})

    assert cells(page, "Status") == ["✕ revoked"]
    note = "revoked 2026-03-04 12:00 UTC by system:admin-token: left the company"
    assert badge.attributes["title"] == note


async def test_an_unused_binding_is_told_after_a_day(world):
    """Needless trust, or a subject that no job has."""
    await world.bind()
    fresh = await see(world)
    world.clock.advance(days=1, seconds=1)
    old = await open_page(world, BINDINGS, **world.admin)

    assert cells(fresh, "Status") == ["✓ active"]
    assert cells(old, "Status") == ["never used"]


async def test_a_row_leads_to_its_audit_rows(world):
    binding_id = await world.bind()
    links = {link.attributes["href"] for link in (await see(world)).all("a")}
    await grant(world, "member", "oidc:r")
    unread = await see(world, who="member")

    assert f"{AUDIT}?oidc_binding_id={binding_id}" in links
    assert f"{AUDIT}?subject={binding_id}" in links
    assert "/audit?" not in unread.html


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        ("text=PAYMENTS", ["repo:acme/payments:x"]),
        ("text=777", ["repo:acme/web:x"]),
        ("text=%25", []),
        ("text=_", []),
        ("state=active&text=", ["repo:acme/web:x"]),
        ("state=revoked", ["repo:acme/payments:x"]),
        ("state=unused", ["repo:acme/web:x"]),
        ("state=active&text=payments", []),
    ],
)
async def test_the_list_is_narrowed_by_state_and_text(world, query, subjects):
    """A part of the subject or the repository id; nothing in it is a wildcard."""
    gone = await world.bind(sub_pattern="repo:acme/payments:x")
    await world.bind(sub_pattern="repo:acme/web:x", repository_id="777")
    await world.revoke(gone)
    page = await see(world, f"{BINDINGS}?{query}")

    assert subjects_of(page) == subjects
    assert ("No binding matches these filters." in page.html) == (not subjects)


async def test_a_long_text_is_looked_for_without_backtracking(world):
    """LIKE takes time for each pair of characters: seconds for a few thousand long subjects."""
    said: list[str] = []
    reader = world.services.store._engines.reader.sync_engine
    event.listen(reader, "before_cursor_execute", lambda *call: said.append(call[2]))
    await world.bind(sub_pattern=f"repo:acme/{'z' * 900}")

    page = await see(world, f"{BINDINGS}?text={'Z' * 800}")

    assert len(cells(page, "CI job")) == 1
    assert not [statement for statement in said if " LIKE " in statement]


async def test_the_past_is_shown_as_the_past(world):
    first = await world.bind(sub_pattern="repo:acme/first:x")
    world.clock.advance(hours=1)
    await world.bind(sub_pattern="repo:acme/second:x")
    world.clock.advance(hours=1)
    await world.revoke(first, "moved")
    then = await see(world, f"{BINDINGS}?asOf=2026-03-04T12:30:00Z")
    gone = await see(world, f"{BINDINGS}?asOf=2026-03-04T15:00:00%2B01:00&state=revoked")
    before = await see(world, f"{BINDINGS}?asOf=2026-03-04")

    assert subjects_of(then) == ["repo:acme/first:x"]
    assert cells(then, "Status") == ["✓ active then"]
    assert "You are viewing a past state." in then.one("div", role="status").text
    assert "2026-03-04 12:30:00" in then.one("div", role="status").text
    assert cells(then, "Last used") == [""]
    assert subjects_of(gone) == []
    assert "No CI job was trusted then." in before.html
    picked = await see(world, f"{BINDINGS}?asOf=2026-03-04T12:30")
    assert subjects_of(picked) == ["repo:acme/first:x"]
    assert picked.one("input", name="asOf").attributes["value"] == "2026-03-04T12:30"
    world.clock.advance(hours=1)
    gone = await see(world, f"{BINDINGS}?asOf=2026-03-04T14:00:01Z&state=revoked")
    assert subjects_of(gone) == ["repo:acme/first:x"]


async def test_bindings_of_one_repository_are_under_its_name(world):
    """The repository of the newest binding first; of each the newest binding first."""
    for sub in ("repo:acme/app:x", "repo:acme/lib:x", "user:x", "repo:acme/app:environment:y"):
        await world.bind(sub_pattern=sub)
        world.clock.advance(hours=1)
    page = await see(world)
    heads = [one.text.strip() for one in page.all("th", scope="rowgroup")]

    assert heads == ["acme/app2", "Other subjects1", "acme/lib1"]
    assert cells(page, "CI job") == [
        "acme/app · environment y",
        "acme/app · x",
        "user:x",
        "acme/lib · x",
    ]
    icons = page.all("svg", role="img")
    assert [icon.attributes["aria-label"] for icon in icons] == ["GitHub", "GitHub"]


@pytest.mark.parametrize(
    ("query", "name", "said"),
    [
        ("asOf=yesterday", "asOf", "asOf must be a date or an RFC 3339 instant"),
        ("asOf=2026-03-05T00:00", "asOf", "asOf must not be in the future"),
        (f"text={'x' * 1025}", "text", "text must be at most 1024 chars"),
    ],
)
async def test_a_faulty_filter_is_named_beside_its_field(world, query, name, said):
    """And nothing is listed: a list that was not asked for would mislead."""
    await world.bind()
    path = f"{BINDINGS}?{query}&state=active"
    typed = parse_qs(query)[name]
    response = await world.client.get(path, headers=world.session("owner"))
    page = await shown(response, 400)

    assert page.one("p", id=f"hint-filter-{name}").text.startswith(said)
    assert page.values(name) == typed
    assert page.values("state") == ["active"]
    assert not page.all("table")


@pytest.mark.parametrize("query", ["state=gone", "limit=5", "after=obind_missing", "text=a&text=b"])
async def test_what_no_form_here_sends_is_refused(world, query):
    """A typo must not change what a list means."""
    response = await world.client.get(f"{BINDINGS}?{query}", headers=world.session("owner"))

    assert response.status_code in {400, 404}


async def test_pages_are_turned_both_ways_and_none_is_missed_by_revoking(world, monkeypatch):
    """Revoking while paging skips no other binding."""
    monkeypatch.setattr(listing, "PAGE_ROWS", 2)
    ids = []
    for number in range(5):
        ids.append(await world.bind(sub_pattern=f"repo:acme/{number}:x"))
        world.clock.advance(minutes=number % 2)  # some in the same instant
    pages = [await see(world, f"{BINDINGS}?state=active")]
    await world.revoke(ids[4])
    while older := pages[-1].all("a", rel="next"):
        pages.append(await see(world, older[0].attributes["href"]))
    there = [subjects_of(page) for page in pages]
    back = await see(world, pages[-1].link("Newer bindings"))
    newest = await see(world, back.link("Newer bindings"))

    assert [len(some) for some in there] == [2, 2, 1]
    assert len({subject for some in there for subject in some}) == 5
    assert "4 bindings, 2 on this page" in " ".join(pages[1].html.split())
    assert subjects_of(back) == there[1]
    assert not newest.all("a", rel="prev")
    assert len(subjects_of(newest)) == 2


async def test_another_organisations_bindings_are_not_there(world):
    binding_id = await world.bind()
    other = world.session("stranger")

    page = await open_page(world, "/admin/ui/orgs/other/bindings", **other)
    assert "No CI job is trusted yet." in page.html
    for path in (f"bindings?after={binding_id}", f"bindings/{binding_id}"):
        response = await world.client.get(f"/admin/ui/orgs/other/{path}", headers=other)
        assert response.status_code == 404


async def test_hostile_texts_are_texts(world):
    team = await add_team(world, HOSTILE_SUB)
    await world.bind(sub_pattern=HOSTILE_SUB)
    gone = await world.bind(
        sub_pattern=HOSTILE_SUB, origin="team_admin", team_id=team.id, event_names=[]
    )
    await world.revoke(gone, HOSTILE_SUB)

    for path in (BINDINGS, f"{BINDINGS}/{gone}"):
        page = await see(world, path)
        assert not page.all("img")
        assert page.scripts == SCRIPTS
        assert HOSTILE_SUB in page.one("main").text
        # Without ids, which are random: what a template made of `{{7*7}}` is on the page nowhere.
        told = page.one("main").text.replace(HOSTILE_SUB, "")
        assert "49" not in re.sub(r"obind_\w+", "", told)
