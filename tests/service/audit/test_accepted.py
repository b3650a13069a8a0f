"""Following the log: rows in the order of their acceptance, each once."""

from datetime import timedelta
from typing import Any

import pytest

from tests.conftest import World, refused

PATH = "/api/v1/admin/orgs/acme/audit/accepted"


async def follow(world: World, after: str | None = None, **query: Any) -> tuple[list[Any], str]:
    """The names of the packages accepted after this row, and where to continue."""
    given = query | ({} if after is None else {"after": after})
    answer = await world.client.get(PATH, headers=world.admin, query_string=given)
    body = await answer.get_json()
    assert answer.status_code == 200, body
    assert body["org"] == "acme"
    return [entry["packageName"] for entry in body["entries"]], body["last"]


async def send(world: World, *names: str, slug: str = "acme", **more: Any) -> None:
    items = [{"event": "install_allowed", "packageName": name, **more} for name in names]
    path = f"/api/v1/admin/orgs/{slug}/audit/events"
    answer = await world.client.post(path, headers=world.admin, json=items)
    assert (await answer.get_json())["accepted"] == len(names)


async def test_rows_follow_in_the_order_of_acceptance(world: World):
    await send(world, "before")
    assert (await follow(world))[0] == []
    _, last = await follow(world)
    old = (world.clock.now - timedelta(days=2)).isoformat()

    await send(world, "one")
    await send(world, "late", created_at=old)
    await send(world, "elsewhere", slug="other")
    names, following = await follow(world, last)

    assert names == ["one", "late"]
    assert await follow(world, following) == ([], following)
    assert following > last


async def test_more_rows_than_the_limit_come_with_the_next_requests(world: World):
    _, last = await follow(world)
    names = [f"p{number}" for number in range(7)]
    await send(world, *names)

    got = []
    for _ in range(4):
        some, last = await follow(world, last, limit=3)
        got += some

    assert got == names


async def test_filters_apply_and_rows_that_do_not_match_are_passed(world: World):
    """Rows that are filtered out are not read again and again."""
    _, last = await follow(world)
    await send(world, "left-pad", "right-pad")

    names, following = await follow(world, last, package="right-pad")

    assert names == ["right-pad"]
    assert await follow(world, following) == ([], following)


async def test_a_place_beyond_the_last_row_begins_with_the_next_one(world: World):
    """As after a backup was restored."""
    _, last = await follow(world, "aud_8999999999999999999")
    await send(world, "next")

    assert (await follow(world, last))[0] == ["next"]


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ({"after": "42"}, "after must be the id of an audit row"),
        ({"after": ""}, "after must be the id of an audit row"),
        ({"order": "asc"}, "unknown query parameter: order"),
        ({"cursor": "x"}, "unknown query parameter: cursor"),
        ({"limit": "0"}, "limit must be an integer from 1 to 1000"),
        ({"decision": "BLOKED"}, "decision must be one of"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_name(world: World, query, refusal):
    status, text = await refused(
        await world.client.get(PATH, headers=world.admin, query_string=query)
    )

    assert status == 400
    assert text.startswith(refusal)


async def test_following_does_not_keep_a_session_alive(world: World):
    """A terminal that was left open must not."""
    for _ in range(3):
        world.clock.advance(hours=5)
        answer = await world.client.get(PATH, headers=world.session("owner"))

    assert answer.status_code == 401
