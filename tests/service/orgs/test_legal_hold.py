"""Legal holds: who set or lifted them, when and why; what cannot be meant is refused."""

from datetime import timedelta

import pytest

from service.core.errors import ReasonInvalid
from service.orgs.organisations import HOLD_REASON_MISSING, hold, release
from service.store.organisations import get_org
from tests.conftest import BY_OPERATOR, START


async def put_on_hold(world, reason: str) -> None:
    async with world.services.store.write() as work:
        await hold(work, await get_org(work.session, "acme"), reason, BY_OPERATOR)


async def lift(world, reason: str | None = None) -> None:
    async with world.services.store.write() as work:
        await release(work, await get_org(work.session, "acme"), reason, BY_OPERATOR)


async def held(world) -> tuple:
    async with world.services.store.read() as session:
        acme = await get_org(session, "acme")
        return acme.held_since, acme.held_reason


async def rows(world) -> list[tuple]:
    """Reason and state of each change of a hold, the oldest first."""
    entries = await world.audit(event="legal_hold_changed", order="asc")
    return [(entry["payload"]["held"], entry["payload"]["reason"]) for entry in entries]


async def test_a_hold_is_set_and_lifted_with_a_row_each(world):
    await put_on_hold(world, "case 4711")
    assert await held(world) == (START, "case 4711")
    world.clock.advance(days=1)
    await lift(world, "settled")
    assert await held(world) == (None, None)

    assert await rows(world) == [(True, "case 4711"), (False, "settled")]
    entry = (await world.audit(event="legal_hold_changed"))[0]
    assert (entry["actor"], entry["verdict_source"]) == ("system:cli", "cli")


async def test_what_changes_nothing_leaves_no_row(world):
    """No row tells of a hold that was there already, or of the end of none."""
    await lift(world, "never held")
    await put_on_hold(world, "case 4711")
    world.clock.advance(days=1)
    await put_on_hold(world, "case 4711")

    assert await rows(world) == [(True, "case 4711")]
    assert await held(world) == (START, "case 4711")


async def test_holding_for_another_reason_is_the_same_hold(world):
    """It has kept everything since it began; only why is new, and recorded."""
    await put_on_hold(world, "case 4711")
    world.clock.advance(days=1)
    await put_on_hold(world, "cases 4711 and 4712")

    assert await held(world) == (START, "cases 4711 and 4712")
    assert await rows(world) == [(True, "case 4711"), (True, "cases 4711 and 4712")]


async def test_a_hold_after_a_release_begins_again(world):
    """In between, rows may have gone."""
    await put_on_hold(world, "case 4711")
    await lift(world)
    world.clock.advance(days=1)
    await put_on_hold(world, "case 4711")

    assert await held(world) == (START + timedelta(days=1), "case 4711")


@pytest.mark.parametrize("reason", ["", " ", "\u00a0\u2003"])
async def test_a_hold_needs_a_reason_that_can_be_read(world, reason):
    """An auditor asks for it years later."""
    with pytest.raises(HOLD_REASON_MISSING):
        await put_on_hold(world, reason)

    assert await held(world) == (None, None)


@pytest.mark.parametrize(
    "reason", ["x" * 1025, "a\x00b", "a\nb", "\x1b[31m", "\udc80", "\u200b\u200d\ufeff"]
)
async def test_a_reason_is_text_of_bounded_length(world, reason):
    with pytest.raises(ReasonInvalid):
        await put_on_hold(world, reason)
    await put_on_hold(world, "x" * 1024)
    with pytest.raises(ReasonInvalid):
        await lift(world, reason)

    assert await held(world) == (START, "x" * 1024)
