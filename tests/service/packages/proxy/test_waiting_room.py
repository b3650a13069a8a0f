"""Places at the registries are shared fairly, and none is ever lost."""

import asyncio
import random

import pytest

from service.core.errors import ProxyBusy, RegistryUnavailable
from service.packages.proxy.waiting_room import Holder, Place, RoomLimits, WaitingRoom
from tests.budgets import budget

LIMITS = RoomLimits(connections=4, waiting=4, wait_s=30)
ORGS = ("a", "b", "c")
REGISTRIES = ("pypi", "npm")


def holder(org: str = "a", registry: str = "pypi") -> Holder:
    return Holder(org, registry)


async def wait_for(room: WaitingRoom, *holders: Holder) -> list[asyncio.Task[Place]]:
    """Requests that wait."""
    tasks = [asyncio.create_task(room.enter(each)) for each in holders]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def fill(room: WaitingRoom, org: str, registry: str = "pypi") -> list[Place]:
    """All places that the organisation may have there."""
    places = []
    while (place := room.try_enter(holder(org, registry))) is not None:
        places.append(place)
    return places


class TestShares:
    async def test_an_organisation_leaves_places_for_others(self):
        room = WaitingRoom(LIMITS)

        assert len(fill(room, "a")) == 2
        assert room.try_enter(holder("b")) is not None

    async def test_a_slow_registry_leaves_places_at_another(self):
        room = WaitingRoom(LIMITS)
        fill(room, "a")
        assert room.try_enter(holder("a", "npm")) is not None

    async def test_an_organisation_leaves_places_at_however_many_registries(self):
        room = WaitingRoom(RoomLimits(connections=128))
        at_each = [len(fill(room, "a", f"registry-{number}")) for number in range(9)]

        assert at_each == [56, 19, 0, 0, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize("orgs", [1, 2, 5, 20])
    async def test_however_many_organisations_leave_places_for_one_more(self, orgs: int):
        """Two registries that do not answer could once hold all places."""
        room = WaitingRoom(RoomLimits(connections=128))
        for number in range(orgs):
            fill(room, f"slow-{number}", "pypi")
            fill(room, f"slow-{number}", "npm")

        assert room.try_enter(holder("late", "pypi")) is not None

    async def test_an_organisation_leaves_room_to_wait(self):
        room = WaitingRoom(LIMITS)
        fill(room, "a")
        fill(room, "b", "npm")
        waiting = await wait_for(room, *[holder("a")] * 3)

        assert [task.done() for task in waiting] == [False, False, True]
        with pytest.raises(ProxyBusy):
            waiting[2].result()
        assert room.waiting == 2
        fill(room, "c")
        (other,) = await wait_for(room, holder("b", "npm"))
        assert not other.done()
        for task in [*waiting, other]:
            task.cancel()

    async def test_one_that_leaves_may_make_room_for_two(self):
        room = WaitingRoom(RoomLimits(connections=9))
        pairs = [("a", "first"), ("a", "second"), ("b", "first")]
        places = [room.try_enter(holder(*pair)) for pair in pairs * 2]
        waiting = await wait_for(room, holder("a", "third"), holder("b", "first"))
        assert not any(task.done() for task in waiting)
        assert places[0] is not None
        places[0].leave()
        await asyncio.gather(*waiting)

        assert room.under_way == 7


class TestTurns:
    async def test_a_place_goes_to_the_organisation_that_holds_the_fewest(self):
        room = WaitingRoom(RoomLimits(connections=7))
        room.try_enter(holder("first", "npm"))
        place, *_ = fill(room, "a") + fill(room, "b") + fill(room, "c")
        assert room.under_way == 7
        waiting = await wait_for(room, holder("first"), holder("late"))
        place.leave()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [False, True]
        for task in waiting:
            task.cancel()

    async def test_organisations_that_hold_equally_many_take_turns(self):
        room = WaitingRoom(RoomLimits(connections=7))
        places = fill(room, "busy") + fill(room, "full") + fill(room, "more")
        assert room.under_way == 7
        waiting = await wait_for(room, *[holder("a")] * 3, *[holder("b")] * 3)
        for place in places[:2]:
            place.leave()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [True, False, False, True, False, False]
        for task in waiting:
            task.cancel()

    async def test_a_request_behind_one_for_a_full_registry_is_served(self):
        room = WaitingRoom(RoomLimits(connections=7))
        fill(room, "a")
        others = fill(room, "b") + fill(room, "c")
        assert room.under_way == 7
        waiting = await wait_for(room, *[holder("a")] * 2, holder("a", "npm"))
        for place in others:
            place.leave()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [False, False, True]
        for task in waiting:
            task.cancel()

    async def test_a_request_that_is_cancelled_gives_up_its_turn(self):
        room = WaitingRoom(LIMITS)
        (place, _) = fill(room, "a")
        first, second = await wait_for(room, holder("a"), holder("a"))
        first.cancel()
        place.leave()

        assert (await second) is not None
        assert room.waiting == 0

    async def test_a_place_given_to_a_request_that_is_cancelled_goes_on_to_the_next(self):
        """Between the two steps of one pass of the event loop."""
        room = WaitingRoom(LIMITS)
        (place, _) = fill(room, "a")
        first, second = await wait_for(room, holder("a"), holder("a"))
        place.leave()
        first.cancel()

        assert (await second) is not None
        assert (room.under_way, room.waiting) == (2, 0)

    async def test_a_place_is_left_once(self):
        room = WaitingRoom(LIMITS)
        (place, _) = fill(room, "a")
        place.leave()
        place.leave()

        assert room.under_way == 1

    async def test_who_waits_too_long_is_told_so(self):
        room = WaitingRoom(RoomLimits(connections=1, wait_s=0.01))
        fill(room, "a")
        with pytest.raises(ProxyBusy):
            await room.enter(holder())

        assert (room.under_way, room.waiting) == (1, 0)

    async def test_waits_for_a_registry_that_does_not_answer_end_at_once(self):
        room = WaitingRoom(LIMITS)
        fill(room, "a")
        fill(room, "b", "npm")
        waiting = await wait_for(room, holder("a"), holder("a"), holder("b", "npm"))
        room.refuse("pypi", lambda: RegistryUnavailable("it does not answer"))
        ended = await asyncio.gather(*waiting[:2], return_exceptions=True)

        assert [type(error) for error in ended] == [RegistryUnavailable] * 2
        assert ended[0] is not ended[1]
        assert not waiting[2].done()
        waiting[2].cancel()


@pytest.mark.parametrize("seed", range(budget(20, 500)))
async def test_no_place_is_lost_in_any_course(seed: int) -> None:
    random_ = random.Random(seed)
    room = WaitingRoom(LIMITS)
    tasks: list[asyncio.Task[Place]] = []
    for _ in range(200):
        match random_.randrange(5):
            case 0 | 1:
                who = holder(random_.choice(ORGS), random_.choice(REGISTRIES))
                tasks.append(asyncio.create_task(room.enter(who)))
            case 2 if tasks:
                random_.choice(tasks).cancel()
            case 3 if tasks:
                ended = random_.choice(tasks)
                if ended.done() and not ended.cancelled() and ended.exception() is None:
                    ended.result().leave()
            case 4:
                await asyncio.sleep(0)
        assert room.under_way <= 4
        assert room.waiting <= 4
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Place):
            ended.leave()

    assert (room.under_way, room.waiting) == (0, 0)
    assert len(fill(room, "a") + fill(room, "b") + fill(room, "c", "npm")) == 4
