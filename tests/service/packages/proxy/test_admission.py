"""Places at the registries are shared fairly, and none is ever lost."""

import asyncio
import random

import pytest

from service.packages.proxy.admission import AdmissionLimits, AdmissionQueue, Holder, Permit
from service.packages.refusals import ProxyBusy, RegistryUnavailable
from tests.budgets import budget

LIMITS = AdmissionLimits(connections=4, waiting=4, wait_s=30)
ORGS = ("a", "b", "c")
REGISTRIES = ("pypi", "npm")


def holder(org: str = "a", registry: str = "pypi") -> Holder:
    return Holder(org, registry)


async def wait_for(queue: AdmissionQueue, *holders: Holder) -> list[asyncio.Task[Permit]]:
    """Requests that wait."""
    tasks = [asyncio.create_task(queue.enter(each)) for each in holders]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def fill(queue: AdmissionQueue, org: str, registry: str = "pypi") -> list[Permit]:
    """All permits that the organisation may have there."""
    permits = []
    while (permit := queue.try_enter(holder(org, registry))) is not None:
        permits.append(permit)
    return permits


class TestShares:
    async def test_an_organisation_leaves_places_for_others(self):
        queue = AdmissionQueue(LIMITS)

        assert len(fill(queue, "a")) == 2
        assert queue.try_enter(holder("b")) is not None

    async def test_a_slow_registry_leaves_places_at_another(self):
        queue = AdmissionQueue(LIMITS)
        fill(queue, "a")
        assert queue.try_enter(holder("a", "npm")) is not None

    async def test_an_organisation_leaves_places_at_however_many_registries(self):
        queue = AdmissionQueue(AdmissionLimits(connections=128))
        at_each = [len(fill(queue, "a", f"registry-{number}")) for number in range(9)]

        assert at_each == [56, 19, 0, 0, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize("orgs", [1, 2, 5, 20])
    async def test_however_many_organisations_leave_places_for_one_more(self, orgs: int):
        """Two registries that do not answer could once hold all permits."""
        queue = AdmissionQueue(AdmissionLimits(connections=128))
        for number in range(orgs):
            fill(queue, f"slow-{number}", "pypi")
            fill(queue, f"slow-{number}", "npm")

        assert queue.try_enter(holder("late", "pypi")) is not None

    async def test_an_organisation_leaves_room_to_wait(self):
        queue = AdmissionQueue(LIMITS)
        fill(queue, "a")
        fill(queue, "b", "npm")
        waiting = await wait_for(queue, *[holder("a")] * 3)

        assert [task.done() for task in waiting] == [False, False, True]
        with pytest.raises(ProxyBusy):
            waiting[2].result()
        assert queue.waiting == 2
        fill(queue, "c")
        (other,) = await wait_for(queue, holder("b", "npm"))
        assert not other.done()
        for task in [*waiting, other]:
            task.cancel()

    async def test_one_that_leaves_may_make_room_for_two(self):
        queue = AdmissionQueue(AdmissionLimits(connections=9))
        pairs = [("a", "first"), ("a", "second"), ("b", "first")]
        permits = [queue.try_enter(holder(*pair)) for pair in pairs * 2]
        waiting = await wait_for(queue, holder("a", "third"), holder("b", "first"))
        assert not any(task.done() for task in waiting)
        assert permits[0] is not None
        permits[0].release()
        await asyncio.gather(*waiting)

        assert queue.under_way == 7


class TestTurns:
    async def test_a_place_goes_to_the_organisation_that_holds_the_fewest(self):
        queue = AdmissionQueue(AdmissionLimits(connections=7))
        queue.try_enter(holder("first", "npm"))
        permit, *_ = fill(queue, "a") + fill(queue, "b") + fill(queue, "c")
        assert queue.under_way == 7
        waiting = await wait_for(queue, holder("first"), holder("late"))
        permit.release()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [False, True]
        for task in waiting:
            task.cancel()

    async def test_organisations_that_hold_equally_many_take_turns(self):
        queue = AdmissionQueue(AdmissionLimits(connections=7))
        permits = fill(queue, "busy") + fill(queue, "full") + fill(queue, "more")
        assert queue.under_way == 7
        waiting = await wait_for(queue, *[holder("a")] * 3, *[holder("b")] * 3)
        for permit in permits[:2]:
            permit.release()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [True, False, False, True, False, False]
        for task in waiting:
            task.cancel()

    async def test_a_request_behind_one_for_a_full_registry_is_served(self):
        queue = AdmissionQueue(AdmissionLimits(connections=7))
        fill(queue, "a")
        others = fill(queue, "b") + fill(queue, "c")
        assert queue.under_way == 7
        waiting = await wait_for(queue, *[holder("a")] * 2, holder("a", "npm"))
        for permit in others:
            permit.release()
        await asyncio.sleep(0)

        assert [task.done() for task in waiting] == [False, False, True]
        for task in waiting:
            task.cancel()

    async def test_a_request_that_is_cancelled_gives_up_its_turn(self):
        queue = AdmissionQueue(LIMITS)
        (permit, _) = fill(queue, "a")
        first, second = await wait_for(queue, holder("a"), holder("a"))
        first.cancel()
        permit.release()

        assert (await second) is not None
        assert queue.waiting == 0

    async def test_a_place_given_to_a_request_that_is_cancelled_goes_on_to_the_next(self):
        """Between the two steps of one pass of the event loop."""
        queue = AdmissionQueue(LIMITS)
        (permit, _) = fill(queue, "a")
        first, second = await wait_for(queue, holder("a"), holder("a"))
        permit.release()
        first.cancel()

        assert (await second) is not None
        assert (queue.under_way, queue.waiting) == (2, 0)

    async def test_a_place_is_left_once(self):
        queue = AdmissionQueue(LIMITS)
        (permit, _) = fill(queue, "a")
        permit.release()
        permit.release()

        assert queue.under_way == 1

    async def test_who_waits_too_long_is_told_so(self):
        queue = AdmissionQueue(AdmissionLimits(connections=1, wait_s=0.01))
        fill(queue, "a")
        with pytest.raises(ProxyBusy):
            await queue.enter(holder())

        assert (queue.under_way, queue.waiting) == (1, 0)

    async def test_waits_for_a_registry_that_does_not_answer_end_at_once(self):
        queue = AdmissionQueue(LIMITS)
        fill(queue, "a")
        fill(queue, "b", "npm")
        waiting = await wait_for(queue, holder("a"), holder("a"), holder("b", "npm"))
        queue.refuse("pypi", lambda: RegistryUnavailable("it does not answer"))
        ended = await asyncio.gather(*waiting[:2], return_exceptions=True)

        assert [type(error) for error in ended] == [RegistryUnavailable] * 2
        assert ended[0] is not ended[1]
        assert not waiting[2].done()
        waiting[2].cancel()


@pytest.mark.parametrize("seed", range(budget(20, 500)))
async def test_no_place_is_lost_in_any_course(seed: int) -> None:
    random_ = random.Random(seed)
    queue = AdmissionQueue(LIMITS)
    tasks: list[asyncio.Task[Permit]] = []
    for _ in range(200):
        match random_.randrange(5):
            case 0 | 1:
                who = holder(random_.choice(ORGS), random_.choice(REGISTRIES))
                tasks.append(asyncio.create_task(queue.enter(who)))
            case 2 if tasks:
                random_.choice(tasks).cancel()
            case 3 if tasks:
                ended = random_.choice(tasks)
                if ended.done() and not ended.cancelled() and ended.exception() is None:
                    ended.result().release()
            case 4:
                await asyncio.sleep(0)
        assert queue.under_way <= 4
        assert queue.waiting <= 4
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Permit):
            ended.release()

    assert (queue.under_way, queue.waiting) == (0, 0)
    assert len(fill(queue, "a") + fill(queue, "b") + fill(queue, "c", "npm")) == 4
