"""Both sides of every limit of a binding request. Lengths count code points."""

from typing import Any

import pytest
from sqlalchemy import insert, select

from service.core.ids import new_id
from service.store.tables import Binding
from service.trust.bindings import rules
from service.trust.refusals import BindingExists
from tests.conftest import World, binding_body, bindings_path, refused

SUB_TEXT = "sub_pattern must be 1..1024 chars with no whitespace / control characters"
DIGITS_TEXT = "repository_id must be a positive integer string"
EVENT_TEXT = "every event_names entry must be a non-whitespace 1..64-char string"
MANY_TEXT = "event_names must have at most 64 entries"

EMOJI = "🦊"
COMBINED = "e\u0301"


def names(count: int) -> list[str]:
    return [f"event_{number}" for number in range(count)]


@pytest.mark.parametrize(
    "changes",
    [
        {"sub_pattern": "s"},
        {"sub_pattern": "s" * 1024},
        {"sub_pattern": EMOJI * 1024},
        {"sub_pattern": COMBINED * 512},
        {"repository_id": 10**32 - 1},
        {"event_names": []},
        {"event_names": ["e"]},
        {"event_names": ["e" * 64]},
        {"event_names": [EMOJI * 64]},
        {"event_names": names(64)},
    ],
    ids=lambda changes: f"{next(iter(changes))}",
)
async def test_what_is_just_within_a_limit_is_stored_as_it_was_sent(
    world: World, changes: dict[str, Any]
):
    """A limit is the last good value, not the first bad one."""
    assert (await world.create(**changes)).status_code == 201

    (stored,) = await world.bindings()
    shown = {
        "sub_pattern": stored["subPattern"],
        "repository_id": stored["repositoryId"],
        "event_names": stored["eventNames"],
    }
    for field, value in changes.items():
        assert shown[field] == (str(value) if field == "repository_id" else value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sub_pattern": ""}, SUB_TEXT),
        ({"sub_pattern": "s" * 1025}, SUB_TEXT),
        ({"sub_pattern": EMOJI * 1025}, SUB_TEXT),
        ({"repository_id": "0" * 32 + "1"}, DIGITS_TEXT),
        ({"event_names": [""]}, EVENT_TEXT),
        ({"event_names": ["e" * 65]}, EVENT_TEXT),
        ({"event_names": [EMOJI * 65]}, EVENT_TEXT),
        ({"event_names": names(65)}, MANY_TEXT),
        ({"event_names": ["push"] * 65}, MANY_TEXT),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_just_beyond_a_limit_is_refused(
    shared_world: World, changes: dict[str, Any], text: str
):
    """Nothing is cut to fit: a shortened sub would trust another identity."""
    assert await refused(await shared_world.create(**changes)) == (400, text)
    assert await shared_world.bindings() == []


LIMIT_TEXT = "limit of 2 active bindings reached: revoke one first"


@pytest.fixture
async def full(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of an organisation's bindings, of which it may have no more."""
    monkeypatch.setattr(rules, "ACTIVE_MAX", 2)
    created = [await world.create(repository_id=number) for number in ("1", "2")]
    return [(await answer.get_json())["id"] for answer in created]


async def test_10_000_bindings_may_be_active(world: World):
    first = await (await world.create(repository_id="1")).get_json()
    async with world.services.store.write() as work:
        of_first = select(Binding.__table__).where(Binding.id == first["id"])
        row = dict((await work.session.execute(of_first)).one()._mapping)
        like_it = [
            {**row, "id": new_id("obind"), "slot": f"slot {number}", "repository_id": str(number)}
            for number in range(2, 10_000)
        ]
        await work.session.execute(insert(Binding.__table__), like_it)

    last = await world.create(repository_id="10000")
    refusal = await refused(await world.create(repository_id="10001"))

    assert last.status_code == 201
    assert refusal == (400, "limit of 10,000 active bindings reached: revoke one first")


async def test_active_bindings_are_bounded(world: World, full: list[str]):
    refusal = await refused(await world.create(repository_id="3"))
    other = await world.client.post(
        bindings_path("other"), headers=world.admin, json=binding_body(repository_id="3")
    )
    await world.revoke(full[0])
    after_revoking = await world.create(repository_id="4")

    assert refusal == (400, LIMIT_TEXT)
    assert other.status_code == 201
    assert after_revoking.status_code == 201
    assert len(await world.audit(event="oidc_binding_created")) == 3


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"repository_id": "1"}, 409),
        ({"repository_id": "x"}, (400, DIGITS_TEXT)),
        ({"repository_id": "3", "unknown": 1}, (400, "unknown field: unknown")),
    ],
)
async def test_every_other_refusal_comes_before_that_of_the_limit(
    world: World, full: list[str], changes: dict[str, Any], refusal: Any
):
    answer = await refused(await world.create(**changes))

    assert answer in (refusal, (409, BindingExists.text))


async def test_a_full_organisation_can_replace_a_binding(world: World, full: list[str]):
    """As many are active before and after."""
    path = f"{bindings_path('acme', full[0])}/replace"

    replaced = await world.client.post(path, headers=world.admin, json={"repository_id": "3"})

    assert replaced.status_code == 201
