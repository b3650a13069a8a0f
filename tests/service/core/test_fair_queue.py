"""Turns of organisations: who begins next, who waits, and who is refused."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import (
    TOO_MANY_WAITING_OF_CALLER,
    WAITED_TOO_LONG,
    ServerBusy,
    TooManyWaiting,
)
from service.core.fair_queue import (
    BESIDE_S,
    CALLER,
    LEAD_MAX_S,
    SHORTS_PER_LONG,
    Bounds,
    FairQueue,
    FairTurns,
    Length,
    QueuedJob,
)
from tests.polling import HANG_S

BOUNDS = Bounds(
    at_once=3,
    per_tenant=3,
    beside_others=3,
    long_at_once=2,
    long_per_tenant=1,
    waiting_per_tenant=1_000,
    waiting=10_000,
    per_caller=1_000,
)
ONE = replace(BOUNDS, at_once=1, long_at_once=1)


@dataclass
class Machine:
    """A queue under a clock that is set, and the jobs that it begins."""

    bounds: Bounds = BOUNDS
    now: float = 0.0
    begun: list[QueuedJob] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    _ends: list[tuple[float, QueuedJob]] = field(default_factory=list)
    _durations: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = FairQueue(self.bounds, lambda: self.now)

    def add(self, tenant_id: str, seconds: float, length: Length = Length.SHORT) -> QueuedJob:
        """A job that will run so long."""
        job = self.queue.add(tenant_id, length)
        self._durations[id(job)] = seconds
        return job

    def begin(self) -> None:
        while (job := self.queue.begin_next()) is not None:
            self.begun.append(job)
            self._ends.append((self.now + self._durations[id(job)], job))
            self.check_bounds()

    def check_bounds(self) -> None:
        """No more run than may."""
        running = [job for _, job in self._ends]
        long = Counter(job.tenant_id for job in running if job.length is Length.LONG)
        assert len(running) <= self.bounds.at_once
        assert long.total() <= self.bounds.long_at_once
        assert all(count <= self.bounds.long_per_tenant for count in long.values())

    def step(self) -> bool:
        """Go on to the end of the next job, if any runs."""
        if not self._ends:
            return False
        end = min(self._ends, key=lambda each: each[0])
        self._ends.remove(end)
        self.now, job = end
        self.used[job.tenant_id] += self._durations[id(job)]
        self.queue.end(job)
        self.begin()
        return True

    def run(self) -> None:
        """Until nothing runs."""
        self.begin()
        while self.step():
            pass

    @property
    def order(self) -> str:
        """The tenants in the order in which their jobs began."""
        return "".join(job.tenant_id for job in self.begun)


def test_two_organisations_take_turns():
    machine = Machine(ONE)
    for _ in range(4):
        machine.add("a", 1.0)
    machine.begin()
    for _ in range(2):
        machine.add("b", 1.0)

    machine.run()

    assert machine.order == "ababaa"


def test_turns_are_shared_by_time_and_not_by_count():
    """One slow page of A costs as much as four quick ones of B."""
    machine = Machine(ONE)
    for _ in range(2):
        machine.add("a", 4.0)
    for _ in range(8):
        machine.add("b", 1.0)

    machine.run()

    assert machine.order == "abbbbabbbb"


def test_short_jobs_begin_before_long_ones():
    """A page that is there in milliseconds does not wait for a grouping."""
    machine = Machine(ONE)
    machine.add("a", 1.0, Length.LONG)
    machine.add("a", 1.0)

    machine.run()

    assert [job.length for job in machine.begun] == [Length.SHORT, Length.LONG]


def test_long_jobs_leave_a_place_to_short_ones():
    machine = Machine()
    for tenant_id in "abc":
        machine.add(tenant_id, 100.0, Length.LONG)
    machine.begin()
    page = machine.add("d", 1.0)

    machine.begin()

    assert page.began_at == 0.0


def test_one_organisation_leaves_a_place_to_the_others():
    machine = Machine(replace(BOUNDS, per_tenant=2))
    first, second = (machine.add("a", 100.0) for _ in range(2))
    third = machine.add("a", 100.0, Length.LONG)
    machine.begin()
    page = machine.add("b", 1.0)

    machine.begin()

    assert [job.began_at for job in (first, second, third, page)] == [0.0, 0.0, None, 0.0]
    assert [job.is_only for job in (first, second, page)] == [True, False, True]


def test_beside_others_an_organisation_runs_fewer_jobs():
    machine = Machine(replace(BOUNDS, at_once=4, beside_others=1))
    machine.add("b", 0.5)
    machine.begin()
    shorts = [machine.add("a", 10.0) for _ in range(2)]
    longs = [machine.add("a", 10.0, Length.LONG) for _ in range(2)]

    machine.begin()

    assert [job.began_at for job in (*shorts, *longs)] == [0.0, None, 0.0, None]


def test_others_that_have_no_job_count_too():
    is_shared = True
    queue = FairQueue(replace(BOUNDS, beside_others=1), lambda: 0.0, lambda: is_shared)
    first, second = (queue.add("a", Length.SHORT) for _ in range(2))

    assert [queue.begin_next(), queue.begin_next()] == [first, None]
    is_shared = False
    assert queue.begin_next() is second


def test_an_organisation_alone_runs_as_many_jobs_as_it_may():
    machine = Machine(replace(BOUNDS, beside_others=1))
    machine.add("b", 0.5)
    machine.begin()
    machine.step()
    jobs = [machine.add("a", 10.0) for _ in range(3)]
    machine.begin()
    assert [job.began_at for job in jobs] == [0.5, None, None]

    machine.now = 0.5 + BESIDE_S
    machine.begin()

    assert [job.began_at for job in jobs] == [0.5, 0.5 + BESIDE_S, 0.5 + BESIDE_S]


def test_short_jobs_do_not_starve_a_long_one():
    machine = Machine(ONE)
    for _ in range(3 * SHORTS_PER_LONG):
        machine.add("a", 1.0)
    grouping = machine.add("b", 1.0, Length.LONG)

    machine.run()

    assert machine.begun.index(grouping) == SHORTS_PER_LONG


def test_no_time_is_saved_up():
    """An organisation that was away for an hour does not hold all places for an hour."""
    machine = Machine(ONE)
    for _ in range(100):
        machine.add("a", 1.0)
    machine.begin()
    for _ in range(50):
        machine.step()
    before = len(machine.begun)
    for _ in range(5):
        machine.add("b", 1.0)

    machine.run()

    assert machine.order[before:].startswith("babababab")


def test_an_organisation_is_charged_for_a_bounded_lead():
    """After a job of an hour it waits LEAD_MAX_S of another's time, and not an hour."""
    machine = Machine(ONE)
    for _ in range(2):
        machine.add("a", 3_600.0)
    for _ in range(20):
        machine.add("b", 1.0)

    machine.run()

    assert machine.order == "a" + "b" * int(LEAD_MAX_S) + "a" + "b" * (20 - int(LEAD_MAX_S))


def test_what_an_organisation_used_counts_also_after_a_pause():
    """One that has no job for a moment does not begin again level with the others."""
    machine = Machine(ONE)
    machine.add("a", 4.0)
    machine.begin()
    for _ in range(6):
        machine.add("b", 1.0)
    for _ in range(2):
        machine.step()
    machine.add("a", 1.0)

    machine.run()

    assert machine.order == "abbbbabb"


def test_jobs_that_run_are_charged_already():
    """Otherwise slow jobs would get more places the longer they take."""
    machine = Machine()
    for tenant_id, seconds in (("a", 100.0), ("a", 100.0), ("b", 10.0)):
        machine.add(tenant_id, seconds)
    machine.begin()
    for tenant_id in "ab":
        machine.add(tenant_id, 1.0)

    machine.run()

    assert machine.order == "ababa"


def test_organisations_without_jobs_are_forgotten():
    machine = Machine()
    for number in range(100):
        machine.add(f"org_{number}", 1.0)

    machine.run()

    assert machine.queue._shares == {}


def test_each_bound_has_its_refusal():
    queue = FairQueue(
        Bounds(
            at_once=1,
            per_tenant=1,
            beside_others=1,
            long_at_once=1,
            long_per_tenant=1,
            waiting_per_tenant=2,
            waiting=3,
            per_caller=1,
        )
    )
    queue.add("a", Length.SHORT, "key_1")
    with pytest.raises(TOO_MANY_WAITING_OF_CALLER):
        queue.add("a", Length.SHORT, "key_1")
    queue.add("a", Length.SHORT, "key_2")
    with pytest.raises(TooManyWaiting):
        queue.add("a", Length.LONG, "key_3")
    queue.add("b", Length.SHORT)
    with pytest.raises(ServerBusy):
        queue.add("c", Length.SHORT)


def test_a_job_that_is_taken_back_frees_its_place():
    queue = FairQueue(replace(BOUNDS, waiting=1, per_caller=1))
    job = queue.add("a", Length.SHORT, "key_1")

    queue.end(job)

    assert queue.add("a", Length.SHORT, "key_1") is queue.begin_next()


def test_a_caller_is_charged_for_no_job_that_was_taken_back():
    queue = FairQueue(replace(BOUNDS, per_caller=1))
    queue.add("a", Length.SHORT, "key_2")

    queue.end(queue.add("a", Length.SHORT, "key_1"))

    assert queue.add("a", Length.SHORT, "key_1").began_at is None


@dataclass(frozen=True)
class Arrival:
    """A job of a generated run."""

    tenant_id: str
    after_s: int
    seconds: int
    length: Length


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        st.sampled_from("abcd"),
        st.integers(0, 3),
        st.integers(1, 20),
        st.sampled_from(Length),
    ),
    min_size=1,
    max_size=40,
)


@given(ARRIVALS, st.integers(0, 39))
def test_no_organisation_waits_for_more_than_its_turn(arrivals: list[Arrival], place: int):
    """Each other one begins at most one short job before the first of one that arrives.

    And every job begins, and no place stays free while a short one waits.
    """
    machine = Machine()
    newcomer, seen = None, 0
    jobs = []
    for number, arrival in enumerate(arrivals):
        due_at = machine.now + arrival.after_s
        while machine._ends and min(end for end, _ in machine._ends) <= due_at:
            machine.step()
        machine.now = due_at
        jobs.append(machine.add(arrival.tenant_id, arrival.seconds, arrival.length))
        if number == place % len(arrivals):
            seen = len(machine.begun)
            newcomer = machine.add("new", 1)
        machine.begin()
    machine.run()

    assert newcomer is not None
    before = machine.begun[seen : machine.begun.index(newcomer)]
    of_each = Counter(job.tenant_id for job in before if job.length is Length.SHORT)
    assert all(count <= 1 for count in of_each.values()), of_each
    assert len(machine.begun) == len(jobs) + 1


@given(
    st.lists(st.integers(1, 20), min_size=8, max_size=30),
    st.lists(st.integers(1, 20), min_size=8, max_size=30),
)
def test_organisations_that_both_wait_use_equal_time(of_a: list[int], of_b: list[int]):
    """Up to what runs at once: no job is interrupted for the other's sake."""
    machine = Machine()
    for tenant_id, durations in (("a", of_a), ("b", of_b)):
        for seconds in durations:
            machine.add(tenant_id, seconds)
    machine.begin()
    longest = max(of_a + of_b)
    while machine.step():
        begun = Counter(machine.order)
        if begun["a"] < len(of_a) and begun["b"] < len(of_b):
            lead = abs(machine.used["a"] - machine.used["b"])
            assert lead <= BOUNDS.at_once * longest


async def test_a_caller_that_goes_leaves_the_queue():
    turns = FairTurns(ONE, HANG_S)
    first = await turns.begin("a", Length.SHORT)
    gone = asyncio.create_task(turns.begin("a", Length.SHORT))
    waiting = asyncio.create_task(turns.begin("b", Length.SHORT))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone

    turns.end(first)

    turns.end(await waiting)
    assert turns.queue.count_running() == turns.queue.count_waiting() == 0


async def test_a_caller_that_goes_as_its_turn_begins_gives_it_back():
    """The place is not lost when both happen in the same turn of the loop."""
    turns = FairTurns(ONE, HANG_S)
    first = await turns.begin("a", Length.SHORT)
    waiting = asyncio.create_task(turns.begin("b", Length.SHORT))
    await asyncio.sleep(0)

    turns.end(first)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with turns.turn("c", Length.SHORT):
        assert turns.queue.count_running() == 1


async def test_a_wait_has_an_end():
    turns = FairTurns(ONE, 0.01)
    async with turns.turn("a", Length.SHORT):
        with pytest.raises(WAITED_TOO_LONG):
            await turns.begin("b", Length.SHORT)

    assert turns.queue.count_waiting() == 0


@dataclass
class Told:
    """An observer that keeps what it is told."""

    events: list[tuple[object, ...]] = field(default_factory=list)

    def waiting(self, length: Length, jobs: int) -> None:
        self.events.append(("waiting", length, jobs))

    def began(self, length: Length, waited_s: float) -> None:
        self.events.append(("began", length))

    def ended(self, tenant_id: str, length: Length, used_s: float) -> None:
        self.events.append(("ended", tenant_id, length))

    def refused(self, tenant_id: str) -> None:
        self.events.append(("refused", tenant_id))


async def test_an_observer_is_told_of_every_turn():
    told = Told()
    turns = FairTurns(ONE, 0.01, told)
    async with turns.turn("a", Length.SHORT):
        with pytest.raises(WAITED_TOO_LONG):
            await turns.begin("b", Length.LONG)

    assert told.events == [
        ("began", Length.SHORT),
        ("waiting", Length.LONG, 1),
        ("waiting", Length.LONG, 0),
        ("refused", "b"),
        ("ended", "a", Length.SHORT),
    ]


async def test_the_caller_of_a_request_is_counted():
    turns = FairTurns(replace(BOUNDS, per_caller=1), HANG_S)
    CALLER.set("key_1")
    async with turns.turn("a", Length.SHORT):
        with pytest.raises(TOO_MANY_WAITING_OF_CALLER):
            await turns.begin("a", Length.SHORT)
