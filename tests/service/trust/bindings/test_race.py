"""Many creates of one triple at once."""

import asyncio
from collections import Counter

from tests.conftest import World, refused

TAKEN = (409, "An active binding already exists for this (issuer, sub, repository_id)")
CALLERS = 50


async def test_of_fifty_concurrent_creates_one_succeeds(world: World):
    """The others are told so; no fault of ours shows, and one thing happened, once recorded."""
    answers = await asyncio.gather(*(world.create() for _ in range(CALLERS)))

    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {201: 1, 409: CALLERS - 1}
    refusals = [await refused(answer) for answer in answers if answer.status_code == 409]
    assert set(refusals) == {TAKEN}
    (winner,) = [await answer.get_json() for answer in answers if answer.status_code == 201]
    assert [binding["id"] for binding in await world.bindings()] == [winner["id"]]
    rows = await world.audit(event="oidc_binding_created")
    assert [row["subject"] for row in rows] == [winner["id"]]


async def test_concurrent_creates_of_different_triples_all_succeed(world: World):
    """They queue for the database's one writer; none is refused for having to wait."""
    answers = await asyncio.gather(
        *(world.create(repository_id=str(number)) for number in range(1, 21))
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len(await world.bindings()) == 20
    assert len(await world.audit(event="oidc_binding_created")) == 20
