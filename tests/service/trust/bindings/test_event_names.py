"""What an array of event names may say, and how it is kept."""

import pytest

from tests.conftest import World


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (..., []),
        (None, []),
        ([], []),
        (["push"], ["push"]),
        (["release", "push"], ["release", "push"]),
        (["push", "release", "push", "push"], ["push", "release"]),
        (["push", "Push", "PUSH"], ["push", "Push", "PUSH"]),
        (["*"], ["*"]),
    ],
)
async def test_names_keep_their_order_and_lose_repeats(world: World, sent, stored: list[str]):
    """Empty means any event; names are compared exactly, so nothing else about them changes."""
    created = await world.create(event_names=sent)

    assert created.status_code == 201
    assert (await created.get_json())["eventNames"] == stored
    assert [binding["eventNames"] for binding in await world.bindings()] == [stored]


@pytest.mark.parametrize("field", ["event_names", "project_id", "team_id"])
async def test_null_is_the_same_as_leaving_an_optional_field_out(world: World, field: str):
    """Generated clients send null for what they do not set."""
    assert (await world.create(**{field: ...})).status_code == 201
    (left_out,) = await world.bindings()

    created = await world.create(**{field: None, "repository_id": "5"})

    assert created.status_code == 201
    null = next(row for row in await world.bindings() if row["repositoryId"] == "5")
    own = {"id": left_out["id"], "repositoryId": left_out["repositoryId"]}
    assert null | own == left_out
