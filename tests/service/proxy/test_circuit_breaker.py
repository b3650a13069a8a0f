"""A registry that does not answer is spared; one that answers is always asked."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.proxy.circuit_breaker import (
    FAILURES_MAX,
    HANG_S,
    OPEN_MAX_S,
    OPEN_S,
    STALL_S,
    Attempt,
    CircuitBreaker,
    CircuitState,
)


def fail(breaker: CircuitBreaker, now: float, times: int = 1) -> None:
    """Requests that fail at once."""
    for _ in range(times):
        attempt = breaker.begin(now)
        assert attempt is not None
        breaker.fail(attempt, now)


def opened(now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    fail(breaker, now, FAILURES_MAX)
    assert breaker.state(now) is CircuitState.OPEN
    return breaker


class TestOpening:
    def test_failures_in_a_row_open_it(self):
        breaker = CircuitBreaker()
        fail(breaker, 0, FAILURES_MAX - 1)
        assert breaker.state(0) is CircuitState.CLOSED
        fail(breaker, 0)

        assert breaker.state(0) is CircuitState.OPEN
        assert breaker.begin(0) is None

    def test_a_success_between_them_keeps_it_closed(self):
        breaker = CircuitBreaker()
        for _ in range(3):
            fail(breaker, 0, FAILURES_MAX - 1)
            breaker.succeed(breaker.begin(0), 0)

        assert breaker.state(0) is CircuitState.CLOSED

    def test_one_request_that_hangs_opens_it(self):
        breaker = CircuitBreaker()
        hanging = breaker.begin(0)

        assert breaker.fail(hanging, HANG_S)
        assert breaker.state(HANG_S) is CircuitState.OPEN

    def test_one_that_hangs_while_others_are_answered_does_not(self):
        """A single document that is slow to make is no outage."""
        breaker = CircuitBreaker()
        hanging = breaker.begin(0)
        breaker.succeed(breaker.begin(1), HANG_S)
        breaker.fail(hanging, HANG_S + 1)

        assert breaker.state(HANG_S + 1) is CircuitState.CLOSED

    def test_a_request_that_is_abandoned_says_nothing(self):
        breaker = CircuitBreaker()
        for _ in range(2 * FAILURES_MAX):
            breaker.give_up(breaker.begin(0))

        assert breaker.state(100) is CircuitState.CLOSED
        assert not breaker.is_suspect(100)


class TestHalfOpen:
    def test_one_request_at_a_time_tries_again(self):
        breaker = opened()
        assert breaker.begin(OPEN_S - 0.1) is None
        probe = breaker.begin(OPEN_S)

        assert probe is not None
        assert breaker.state(OPEN_S) is CircuitState.HALF_OPEN
        assert breaker.begin(OPEN_S) is None

    def test_its_success_closes_it(self):
        breaker = opened()
        breaker.succeed(breaker.begin(OPEN_S), OPEN_S)

        assert breaker.state(OPEN_S) is CircuitState.CLOSED
        assert not breaker.is_suspect(OPEN_S)

    def test_its_failure_makes_the_next_pause_longer_up_to_a_limit(self):
        breaker, now, pauses = opened(), 0.0, [OPEN_S]
        for _ in range(4):
            now += pauses[-1]
            assert breaker.fail(breaker.begin(now), now)
            pauses.append(next(s for s in range(1, 100) if breaker.admits(now + s)))

        assert pauses == [5, 10, 20, OPEN_MAX_S, OPEN_MAX_S]

    def test_a_probe_that_is_abandoned_leaves_its_turn_to_the_next(self):
        breaker = opened()
        breaker.give_up(breaker.begin(OPEN_S))

        assert breaker.begin(OPEN_S) is not None

    def test_late_failures_of_earlier_requests_change_nothing(self):
        breaker = CircuitBreaker()
        earlier = breaker.begin(0)
        fail(breaker, 0, FAILURES_MAX)
        probe = breaker.begin(OPEN_S)

        assert not breaker.fail(earlier, OPEN_S)
        breaker.succeed(probe, OPEN_S)
        assert breaker.state(OPEN_S) is CircuitState.CLOSED

    def test_any_late_success_closes_it(self):
        breaker = CircuitBreaker()
        earlier = breaker.begin(0)
        fail(breaker, 0, FAILURES_MAX)
        breaker.succeed(earlier, 1)

        assert breaker.begin(1) is not None


class TestSuspect:
    def test_a_request_without_an_answer_makes_it_suspect(self):
        breaker = CircuitBreaker()
        breaker.begin(0)

        assert not breaker.is_suspect(STALL_S - 0.1)
        assert breaker.is_suspect(STALL_S)

    def test_an_answer_to_another_one_clears_it(self):
        breaker = CircuitBreaker()
        breaker.begin(0)
        breaker.succeed(breaker.begin(STALL_S), STALL_S)

        assert not breaker.is_suspect(STALL_S)
        assert breaker.is_suspect(2 * STALL_S)

    def test_it_is_suspect_until_it_is_closed(self):
        breaker = opened()

        assert breaker.is_suspect(0)
        assert breaker.is_suspect(OPEN_S)


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker()
        self.now = 0.0
        self.under_way: list[Attempt] = []

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def one_begins(self) -> None:
        admits = self.breaker.admits(self.now)
        attempt = self.breaker.begin(self.now)
        assert (attempt is not None) == admits
        if attempt is not None:
            self.under_way.append(attempt)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), end=st.sampled_from(["succeed", "fail", "give_up"]))
    def one_ends(self, data: st.DataObject, end: str) -> None:
        attempt = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(attempt)
        if end == "give_up":
            self.breaker.give_up(attempt)
        elif end == "fail":
            self.breaker.fail(attempt, self.now)
        else:
            self.breaker.succeed(attempt, self.now)
            assert self.breaker.state(self.now) is CircuitState.CLOSED

    @invariant()
    def without_requests_a_closed_one_is_not_suspect(self) -> None:
        is_closed = self.breaker.state(self.now) is CircuitState.CLOSED
        assert self.under_way or self.breaker.is_suspect(self.now) != is_closed

    @invariant()
    def no_pause_is_longer_than_the_limit(self) -> None:
        later = self.now + OPEN_MAX_S
        assert self.breaker.state(later) is not CircuitState.OPEN
        assert self.under_way or self.breaker.admits(later)


TestAnyCourse = AnyCourse.TestCase
