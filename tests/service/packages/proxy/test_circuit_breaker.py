"""A registry that does not answer is spared; one that answers is always asked."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.packages.proxy.circuit_breaker import (
    FAILURES_MAX,
    HANG_S,
    OPEN_MAX_S,
    OPEN_S,
    STALL_S,
    CircuitBreaker,
    CircuitState,
    OriginAttempt,
)
from tests.service.packages.proxy.documents import SettableTimer


@pytest.fixture
def timer() -> SettableTimer:
    return SettableTimer()


@pytest.fixture
def changes() -> list[bool]:
    """Whether the circuit opened, at each change."""
    return []


@pytest.fixture
def breaker(timer: SettableTimer, changes: list[bool]) -> CircuitBreaker:
    return CircuitBreaker("https://a.example:443", timer, changes.append)


@pytest.fixture
def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    fail(breaker, FAILURES_MAX)
    assert breaker.state is CircuitState.OPEN
    return breaker


def begun(breaker: CircuitBreaker) -> OriginAttempt:
    attempt = breaker.begin()
    assert attempt is not None
    return attempt


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    """Requests that fail at once."""
    for _ in range(times):
        begun(breaker).fail()


class TestOpening:
    def test_failures_in_a_row_open_it(self, breaker, changes):
        fail(breaker, FAILURES_MAX - 1)
        assert breaker.state is CircuitState.CLOSED
        assert changes == []
        fail(breaker)

        assert breaker.state is CircuitState.OPEN
        assert breaker.begin() is None
        assert changes == [True]

    def test_a_success_between_them_keeps_it_closed(self, breaker, changes):
        for _ in range(3):
            fail(breaker, FAILURES_MAX - 1)
            begun(breaker).succeed()

        assert breaker.state is CircuitState.CLOSED
        assert changes == []

    def test_one_request_that_hangs_opens_it(self, breaker, timer):
        hanging = begun(breaker)
        timer.now = HANG_S
        hanging.fail()

        assert breaker.state is CircuitState.OPEN

    def test_one_that_hangs_while_others_are_answered_does_not(self, breaker, timer):
        """A single document that is slow to make is no outage."""
        hanging = begun(breaker)
        timer.now = HANG_S
        begun(breaker).succeed()
        timer.now += 1
        hanging.fail()

        assert breaker.state is CircuitState.CLOSED

    def test_a_download_that_began_and_breaks_off_says_nothing(self, breaker, timer, changes):
        """Slow files of one organisation do not keep the others from the registry."""
        downloads = [begun(breaker) for _ in range(FAILURES_MAX)]
        for download in downloads:
            download.succeed()
        timer.now += HANG_S
        for download in downloads:
            download.fail()

        assert breaker.state is CircuitState.CLOSED
        assert changes == []

    def test_a_request_that_is_abandoned_says_nothing(self, breaker, timer):
        for _ in range(2 * FAILURES_MAX):
            with begun(breaker):
                pass
        timer.now = 100

        assert breaker.state is CircuitState.CLOSED
        assert not breaker.is_suspect


class TestHalfOpen:
    def test_one_request_at_a_time_tries_again(self, opened, timer):
        timer.now = OPEN_S - 0.1
        assert opened.begin() is None
        timer.now = OPEN_S
        begun(opened)

        assert opened.state is CircuitState.HALF_OPEN
        assert opened.begin() is None

    def test_its_success_closes_it(self, opened, timer, changes):
        timer.now = OPEN_S
        begun(opened).succeed()

        assert opened.state is CircuitState.CLOSED
        assert not opened.is_suspect
        assert changes == [True, False]

    def test_its_failure_makes_the_next_pause_longer_up_to_a_limit(self, opened, timer):
        pauses = []
        for _ in range(5):
            began_at = timer.now
            while not opened.allows_requests:
                timer.now += 1
            pauses.append(timer.now - began_at)
            fail(opened)

        assert pauses == [OPEN_S, 2 * OPEN_S, 4 * OPEN_S, OPEN_MAX_S, OPEN_MAX_S]

    def test_a_probe_that_is_abandoned_leaves_its_turn_to_the_next(self, opened, timer):
        timer.now = OPEN_S
        with begun(opened):
            assert opened.begin() is None

        begun(opened)

    def test_late_failures_of_earlier_requests_change_nothing(self, breaker, timer, changes):
        earlier = begun(breaker)
        fail(breaker, FAILURES_MAX)
        timer.now = OPEN_S
        probe = begun(breaker)
        earlier.fail()

        assert changes == [True]
        probe.succeed()
        assert breaker.state is CircuitState.CLOSED

    def test_any_late_success_closes_it(self, breaker, timer):
        earlier = begun(breaker)
        fail(breaker, FAILURES_MAX)
        timer.now = 1
        earlier.succeed()

        assert breaker.begin() is not None


class TestSuspect:
    def test_a_request_without_an_answer_makes_it_suspect(self, breaker, timer):
        begun(breaker)
        timer.now = STALL_S - 0.1
        assert not breaker.is_suspect
        timer.now = STALL_S
        assert breaker.is_suspect

    def test_an_answer_to_another_one_clears_it(self, breaker, timer):
        begun(breaker)
        timer.now = STALL_S
        begun(breaker).succeed()

        assert not breaker.is_suspect
        timer.now = 2 * STALL_S
        assert breaker.is_suspect

    def test_it_is_suspect_until_it_is_closed(self, opened, timer):
        assert opened.is_suspect
        timer.now = OPEN_S
        assert opened.is_suspect


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.timer = SettableTimer()
        self.changes: list[bool] = []
        self.breaker = CircuitBreaker("https://a.example:443", self.timer, self.changes.append)
        self.under_way: list[OriginAttempt] = []

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.timer.now += seconds

    @rule()
    def one_begins(self) -> None:
        allows = self.breaker.allows_requests
        attempt = self.breaker.begin()
        assert (attempt is not None) == allows
        if attempt is not None:
            self.under_way.append(attempt)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), end=st.sampled_from(["succeed", "fail", "give_up"]))
    def one_ends(self, data: st.DataObject, end: str) -> None:
        attempt = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(attempt)
        with attempt:
            if end == "fail":
                attempt.fail()
            elif end == "succeed":
                attempt.succeed()
                assert self.breaker.state is CircuitState.CLOSED

    @invariant()
    def the_last_change_is_the_state(self) -> None:
        is_open = self.breaker.state is not CircuitState.CLOSED
        assert is_open == (self.changes[-1] if self.changes else False)

    @invariant()
    def without_requests_a_closed_one_is_not_suspect(self) -> None:
        is_closed = self.breaker.state is CircuitState.CLOSED
        assert self.under_way or self.breaker.is_suspect != is_closed

    @invariant()
    def no_pause_is_longer_than_the_limit(self) -> None:
        now = self.timer.now
        self.timer.now += OPEN_MAX_S
        assert self.breaker.state is not CircuitState.OPEN
        assert self.under_way or self.breaker.allows_requests
        self.timer.now = now


TestAnyCourse = AnyCourse.TestCase
