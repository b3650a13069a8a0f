"""Saved searches: by name, for everyone in the organisation who may read its audit log."""

import pytest

from service.audit import saved_searches
from tests.conftest import refused
from tests.service.pages.page import AUDIT, add_install, open_page, send_form

API = "/api/v1/admin/orgs/acme/audit/searches"
BLOCKED = {"name": "Blocked this week", "query": "decision=BLOCKED&last=7d"}


async def save(world, body=None, **headers):
    return await world.client.post(API, json=body or BLOCKED, headers=headers or world.admin)


async def listed(world, slug="acme"):
    response = await world.client.get(
        f"/api/v1/admin/orgs/{slug}/audit/searches", headers=world.admin
    )
    return [(one["name"], one["query"]) for one in (await response.get_json())["searches"]]


async def test_a_search_is_saved_listed_and_deleted(world):
    await save(world, {"name": "x", "query": "?package=left-pad&columns=run"})
    created = await (await save(world)).get_json()

    assert created["created_by"] == "system:admin-token"
    assert await listed(world) == [
        ("Blocked this week", "decision=BLOCKED&last=7d"),
        ("x", "package=left-pad&columns=run"),
    ]
    response = await world.client.delete(f"{API}/{created['id']}", headers=world.admin)
    assert await response.get_json() == {"deleted": created["id"]}
    assert [name for name, _ in await listed(world)] == ["x"]
    again = await world.client.delete(f"{API}/{created['id']}", headers=world.admin)
    assert await refused(again) == (404, "Saved search not found for this org")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"name": "x"}, "query is required (string)"),
        ({"name": "", "query": "package=x"}, "name must be 1 to"),
        ({"name": "x", "query": "pakage=x"}, "unknown query parameter: pakage"),
        ({"name": "x", "query": "cursor=x"}, "unknown query parameter: cursor"),
        ({"name": "x", "query": "decision=MAYBE"}, "decision must be one of"),
        ({"name": "x", "query": "last=soon"}, "last must be a number"),
        ({"name": "x", "query": "last=1d&since=2026-01-01"}, "last excludes since and until"),
        ({"name": "x", "query": ""}, "query must be filters"),
        ({"name": "x", "query": "x" * 5000}, "query must be at most"),
        ({"name": "x", "query": "package=\ud800"}, "query must be text without lone surrogates"),
        ({"name": "x", "query": "columns=\ud800&package=x"}, "query must be text without"),
        ({"name": "x", "query": "package=x", "more": 1}, "unknown field: more"),
    ],
)
async def test_what_is_no_search_is_refused(world, body, part):
    status, text = await refused(await save(world, body))

    assert status == 400
    assert part in text
    assert await listed(world) == []


async def test_a_name_is_used_once(world):
    """Two searches with one name could not be told apart."""
    await save(world)

    assert await refused(await save(world)) == (409, "a saved search of this name exists")
    assert await listed(world, "other") == []


async def test_an_organisation_keeps_a_bounded_number(world, monkeypatch):
    monkeypatch.setattr(saved_searches, "SEARCHES_MAX", 1)
    await save(world)

    text = "limit of 1 saved searches reached: delete one first"
    assert await refused(await save(world, BLOCKED | {"name": "x"})) == (409, text)


async def test_another_organisations_search_cannot_be_deleted(world):
    created = await (await save(world)).get_json()
    response = await world.client.delete(
        f"/api/v1/admin/orgs/other/audit/searches/{created['id']}", headers=world.admin
    )

    assert response.status_code == 404
    assert len(await listed(world)) == 1


@pytest.mark.parametrize(
    ("who", "status"), [("auditor", 201), ("team_admin", 403), ("stranger", 403)]
)
async def test_readers_of_the_log_may_save(world, who, status):
    """They share what they found."""
    assert (await save(world, **world.session(who))).status_code == status


async def test_the_page_saves_what_it_shows_and_leads_back_to_it(world):
    await add_install(world, package_name="left-pad")
    page = await open_page(world, "?package=left-pad&last=24h")
    response = await send_form(world, page, f"{AUDIT}/searches", "auditor", name="Pads")
    page = await open_page(world, response.headers["location"])

    assert page.chips == ["Package is left-pad"]
    link = next(one for one in page.all("a") if one.text == "Pads")
    assert link.attributes["aria-current"] == "true"
    (delete,) = [action for action in page.forms if action.endswith("/delete")]
    assert (await send_form(world, page, delete, "auditor")).status_code == 303
    assert await listed(world) == []
