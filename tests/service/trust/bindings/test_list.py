"""What the list shows, in what order, and how it goes back in time."""

import re
from typing import Any

import pytest

from service.trust.bindings import listing
from tests.conftest import ISSUER, World, binding_body, bindings_path, refused

ADDED = "2026-03-04T12:00:00.123Z"
NO_INSTANT = "asOf must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)"
CREATED_KEYS = [
    "id",
    "issuer",
    "subPattern",
    "repositoryId",
    "eventNames",
    "origin",
    "addedAt",
]


async def listed(world: World, **query: str) -> list[str]:
    return [binding["repositoryId"] for binding in await world.bindings(**query)]


async def test_an_organisation_without_bindings_lists_none(world: World):
    response = await world.client.get(bindings_path(), headers=world.admin)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert await response.get_json() == {"org": "acme", "count": 0, "bindings": []}


async def test_a_create_answers_with_its_seven_fields(world: World):
    """No more: who added it is for those who may read the list."""
    created = await (await world.create()).get_json()

    assert list(created) == CREATED_KEYS
    assert re.fullmatch(r"obind_[0-9a-z]{16}", created.pop("id"))
    assert created == {
        "issuer": ISSUER,
        "subPattern": "repo:acme/payments:ref:refs/heads/main",
        "repositoryId": "123456789",
        "eventNames": ["push"],
        "origin": "org_admin",
        "addedAt": ADDED,
    }


async def test_a_list_shows_every_field_of_each_binding(world: World):
    created = await (await world.create(project_id=world.project.id)).get_json()

    response = await world.client.get(bindings_path(), headers=world.admin)

    assert await response.get_json() == {
        "org": "acme",
        "count": 1,
        "bindings": [
            {
                "id": created["id"],
                "projectId": world.project.id,
                "teamId": None,
                "issuer": ISSUER,
                "subPattern": "repo:acme/payments:ref:refs/heads/main",
                "repositoryId": "123456789",
                "eventNames": ["push"],
                "origin": "org_admin",
                "addedBy": "system:admin-token",
                "addedAt": ADDED,
                "revokedAt": None,
                "revokedBy": None,
                "revokedReason": None,
                "lastUsedAt": None,
                "useCount": 0,
            }
        ],
    }


async def test_added_by_and_revoked_by_name_the_member_under_their_home_provider(world: World):
    """One name for a person in bindings and in the audit log."""
    owner = f"github:{world.members['owner'].id}"
    created = await (await world.create(headers=world.session("owner"))).get_json()
    await world.client.delete(bindings_path("acme", created["id"]), headers=world.session("owner"))

    (binding,) = await world.bindings()
    assert (binding["addedBy"], binding["revokedBy"]) == (owner, owner)


async def test_the_newest_binding_comes_first(world: World):
    first = await world.bind(repository_id="1")
    world.clock.advance(milliseconds=1)
    await world.bind(repository_id="2")
    world.clock.advance(days=1)
    await world.bind(repository_id="3")
    await world.revoke(first)

    assert await listed(world) == ["3", "2", "1"]


async def test_bindings_of_one_millisecond_are_listed_by_id(world: World):
    """Timestamps show milliseconds; what they do not show must not decide the order."""
    for number in range(1, 9):
        await world.bind(repository_id=str(number))
        world.clock.advance(microseconds=50)

    listing = await world.bindings()
    assert {binding["addedAt"] for binding in listing} == {ADDED}
    assert [binding["id"] for binding in listing] == sorted(row["id"] for row in listing)


async def test_an_organisation_lists_only_its_own(world: World):
    await world.bind(repository_id="1")

    response = await world.client.get(bindings_path("other"), headers=world.admin)

    assert await response.get_json() == {"org": "other", "count": 0, "bindings": []}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["2", "1"]),
        ({"state": "active"}, ["2"]),
        ({"state": "revoked"}, ["1"]),
    ],
)
async def test_state_shows_one_of_the_two_and_counts_what_it_shows(
    world: World, query: dict[str, str], expected: list[str]
):
    """`count` is the number of bindings in the answer."""
    gone = await world.bind(repository_id="1")
    world.clock.advance(seconds=1)
    await world.bind(repository_id="2")
    await world.revoke(gone)

    response = await world.client.get(bindings_path(), headers=world.admin, query_string=query)

    answer: dict[str, Any] = await response.get_json()
    assert [binding["repositoryId"] for binding in answer["bindings"]] == expected
    assert answer["count"] == len(expected)


@pytest.mark.parametrize(
    ("as_of", "active", "revoked"),
    [
        ("2026-03-04T12:00:00.122Z", [], []),
        ("2026-03-04T12:00:00.122999Z", [], []),
        (ADDED, ["1"], []),
        ("2026-03-04T12:30:00Z", ["1"], []),
        ("2026-03-04T13:00:00.122Z", ["1"], []),
        ("2026-03-04T13:00:00.123Z", [], ["1"]),
        ("2026-03-04T14:00:00.123+01:00", [], ["1"]),
        ("2026-03-04T14:00:00.123 01:00", [], ["1"]),
        ("2026-03-04T13:00:00.122", ["1"], []),
        ("2026-03-04", [], []),
        ("2026-03-05", [], ["1"]),
        ("9999-12-31T23:59:59Z", [], ["1"]),
        ("0001-01-01T00:00:00Z", [], []),
    ],
)
async def test_as_of_shows_who_was_trusted_at_that_instant(
    world: World, as_of: str, active: list[str], revoked: list[str]
):
    """From the instant it was added until the instant it was revoked, as the list prints them."""
    binding_id = await world.bind(repository_id="1")
    world.clock.advance(hours=1)
    await world.revoke(binding_id)

    assert await listed(world, asOf=as_of) == active
    assert await listed(world, asOf=as_of, state="active") == active
    assert await listed(world, asOf=as_of, state="revoked") == revoked


async def test_a_printed_added_at_read_back_finds_its_binding(world: World):
    """And a printed revokedAt is the first instant at which the trust was gone."""
    binding_id = await world.bind(repository_id="1")
    world.clock.advance(microseconds=1_700)
    await world.revoke(binding_id)
    (binding,) = await world.bindings()

    assert await listed(world, asOf=binding["addedAt"]) == ["1"]
    assert await listed(world, asOf=binding["revokedAt"]) == []


# One binding


async def test_a_create_says_where_its_binding_is(world: World):
    """RFC 9110, 10.2.2."""
    created = await world.create()
    location = created.headers["location"]
    shown = await world.client.get(location, headers=world.admin)

    assert location == bindings_path("acme", (await created.get_json())["id"])
    assert shown.status_code == 200
    binding = await shown.get_json()
    assert (binding.pop("effective"), binding.pop("ineffectiveReason")) == (True, None)
    assert [binding] == await world.bindings()


async def test_a_revoked_binding_is_shown_with_its_end(world: World):
    """A row of the log may name it years later."""
    binding_id = await world.bind(repository_id="1")
    await world.revoke(binding_id)

    shown = await world.client.get(bindings_path("acme", binding_id), headers=world.admin)

    binding = await shown.get_json()
    assert binding["revokedAt"] == ADDED
    assert (binding["effective"], binding["ineffectiveReason"]) == (False, "revoked")


async def test_a_binding_of_another_organisation_is_not_there(world: World):
    binding_id = await world.bind(repository_id="1")
    for slug, name in (("other", binding_id), ("acme", "obind_0000000000000000")):
        answer = await world.client.get(bindings_path(slug, name), headers=world.admin)
        assert await refused(answer) == (404, "Binding not found for this org")


async def test_a_team_binding_without_its_envelope_says_that_it_matches_nothing(world: World):
    """It is active, so without a word a reader would believe that its jobs are trusted."""
    envelope = await world.bind(repository_id="1")
    team = {"origin": "team_admin", "team_id": world.team.id, "repository_id": "1"}
    binding_id = await world.bind(**team)
    path = bindings_path("acme", binding_id)

    async def effect() -> tuple[bool, str | None]:
        shown = await (await world.client.get(path, headers=world.admin)).get_json()
        assert shown["revokedAt"] is None
        return shown["effective"], shown["ineffectiveReason"]

    assert await effect() == (True, None)
    await world.revoke(envelope)
    without = "no active org_admin binding has its issuer, sub_pattern and repository_id"
    assert await effect() == (False, without)
    assert "effective" not in (await world.bindings())[0]


# Pages and filters


async def pages(world: World, **query: str) -> list[list[str]]:
    """The repository ids on each page, following the cursors."""
    found, cursor = [], {}
    while True:
        answer = await world.client.get(
            bindings_path(), headers=world.admin, query_string={**query, **cursor}
        )
        body = await answer.get_json()
        assert answer.status_code == 200, body
        assert list(body) == ["org", "count", "bindings", "next_cursor"]
        assert body["count"] == len(body["bindings"])
        found.append([binding["repositoryId"] for binding in body["bindings"]])
        if body["next_cursor"] is None:
            return found
        cursor = {"cursor": body["next_cursor"]}


async def test_pages_are_the_list_in_parts(world: World):
    ids = [await world.bind(repository_id=str(number)) for number in range(1, 6)]
    whole = await listed(world)

    assert [one for page in await pages(world, limit="2") for one in page] == whole
    assert [len(page) for page in await pages(world, limit="2")] == [2, 2, 1]
    assert await pages(world, limit="5") == [whole]
    await world.revoke(ids[2])
    left = await listed(world, state="active")
    assert [one for page in await pages(world, limit="1", active="true") for one in page] == left
    assert await pages(world, limit="1", active="false") == [["3"]]


async def test_filters_match_exactly(world: World):
    """A subject in another case is another job; leading zeros of an id mean the same one."""
    await world.create(repository_id="1", sub_pattern="repo:acme/a")
    await world.create(repository_id="2", sub_pattern="repo:acme/a")
    await world.create(repository_id="2", sub_pattern="repo:acme/A")

    assert sorted(await listed(world, sub="repo:acme/a")) == ["1", "2"]
    assert await listed(world, sub="repo:acme/A") == ["2"]
    assert await listed(world, sub="repo:acme/") == []
    assert await listed(world, repository_id="002") == ["2", "2"]
    assert await listed(world, repository_id="1", issuer=ISSUER) == ["1"]
    assert await listed(world, repository_id="1", issuer="https://gitlab.com") == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        *(
            ({"state": state}, "state must be one of active, revoked")
            for state in ("", "Active", "all", "active ")
        ),
        *(({"asOf": as_of}, NO_INSTANT) for as_of in ("", "now", "2026-02-30", "1772625600")),
        ({"asOf": "2026-03-04T12:00:00.1234567Z"}, NO_INSTANT),
        ({"state": ["active", "revoked"]}, "state may be given only once"),
        ({"asOf": ["2026-01-01", "2026-01-02"]}, "asOf may be given only once"),
        ({"limit": "0"}, "limit must be an integer from 1 to 1000"),
        ({"limit": "1001"}, "limit must be an integer from 1 to 1000"),
        ({"limit": "many"}, "limit must be an integer from 1 to 1000"),
        ({"cursor": "obind_0000000000000000"}, "cursor is not valid for this query"),
        ({"active": "yes"}, "active must be true or false"),
        ({"active": "true", "state": "active"}, "give either state or active"),
        ({"repository_id": "x"}, "repository_id must be a positive integer string"),
        ({"sub": ""}, "sub must be 1..1024 chars"),
        ({"project": "x"}, "unknown query parameter: project"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_faulty_parameter_is_named(shared_world: World, query: dict[str, Any], text: str):
    """A filter that was ignored would show what the caller did not ask for."""
    answer = await shared_world.client.get(
        bindings_path(), headers=shared_world.admin, query_string=query
    )

    assert await refused(answer) == (400, text)


async def test_a_cursor_of_another_organisation_is_not_accepted(world: World):
    path = bindings_path("other")
    theirs = await world.client.post(
        path, headers=world.admin, json=binding_body(repository_id="9")
    )
    cursor = (await theirs.get_json())["id"]

    answer = await world.client.get(
        bindings_path(), headers=world.admin, query_string={"cursor": cursor}
    )

    assert await refused(answer) == (400, "cursor is not valid for this query")


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6])
async def test_a_long_list_is_read_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: int
):
    """The same bindings in the same order, whole and in pages, however many are read at once."""
    for number in range(1, 6):
        await world.bind(repository_id=str(number))
    whole = await listed(world)
    monkeypatch.setattr(listing, "PART_ROWS", rows)

    first = await (
        await world.client.get(f"{bindings_path()}?limit=3", headers=world.admin)
    ).get_json()
    last = await (
        await world.client.get(
            f"{bindings_path()}?limit=3&cursor={first['next_cursor']}", headers=world.admin
        )
    ).get_json()

    assert len(whole) == 5
    assert await listed(world) == whole
    assert [entry["repositoryId"] for entry in first["bindings"] + last["bindings"]] == whole
    assert (first["count"], last["count"], last["next_cursor"]) == (3, 2, None)
