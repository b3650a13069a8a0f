"""Decides when an origin is asked and when it is spared, from what became of earlier requests.

One that fails several times in a row, or leaves a request without an answer for long, is not
asked for a while (open). Then one request at a time may try again (half-open): its success ends the
outage, its failure makes the next pause longer. Any success closes the circuit.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Final

import structlog

FAILURES_MAX: Final = 3
"""Failures in a row that open the circuit."""

HANG_S: Final = 5.0
"""A request that fails after so long, during which none succeeded, opens the circuit by itself."""

STALL_S: Final = 1.0
"""After so long without a success, a request under way makes the origin suspect."""

OPEN_S: Final = 5.0
OPEN_MAX_S: Final = 30.0
"""The first pause; each failed probe doubles it up to the maximum."""


class CircuitState(StrEnum):
    """Whether requests are sent."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


WORST_FIRST: Final = (CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED)

_log = structlog.get_logger(__name__)


class CircuitBreaker:
    """The requests of this process to one origin."""

    def __init__(
        self, origin: str, timer: Callable[[], float], changed: Callable[[bool], None]
    ) -> None:
        """`timer` is any steady clock, in seconds.

        `changed` is called when the circuit opens (True), and when it closes (False).
        """
        self._origin = origin
        self._timer = timer
        self._changed = changed
        self._under_way: dict[OriginAttempt, None] = {}
        self._succeeded_at = -math.inf
        self._failures = 0
        self._pause_s = OPEN_S
        self._open_until: float | None = None
        self._probe: OriginAttempt | None = None

    @property
    def state(self) -> CircuitState:
        """The state now."""
        if self._open_until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self._timer() < self._open_until else CircuitState.HALF_OPEN

    @property
    def allows_requests(self) -> bool:
        """True if `begin` would return an attempt."""
        state = self.state
        return state is CircuitState.CLOSED or (
            state is CircuitState.HALF_OPEN and self._probe is None
        )

    @property
    def is_suspect(self) -> bool:
        """True if an answer should not be waited for by those who can do without.

        The circuit is not closed, or a request has been under way for STALL_S without a success.
        """
        if self._open_until is not None:
            return True
        oldest = next(iter(self._under_way), None)
        return oldest is not None and self._waited_s(oldest) >= STALL_S

    def begin(self) -> "OriginAttempt | None":
        """A request that is sent now; None if none may be."""
        if not self.allows_requests:
            return None
        attempt = OriginAttempt(self, self._timer())
        self._under_way[attempt] = None
        if self._open_until is not None:
            self._probe = attempt
        return attempt

    def succeed(self, attempt: "OriginAttempt") -> None:
        """See `OriginAttempt.succeed`."""
        self.end(attempt)
        was_open = self._open_until is not None
        self._succeeded_at = self._timer()
        self._failures = 0
        self._pause_s = OPEN_S
        self._open_until = None
        self._probe = None
        if was_open:
            _log.info("registry_answers_again", origin=self._origin)
            self._changed(False)

    def fail(self, attempt: "OriginAttempt") -> None:
        """See `OriginAttempt.fail`."""
        if attempt not in self._under_way:
            # A file that began and broke off later: it tells nothing of other requests, and one
            # organisation's slow downloads must not keep others from the registry.
            return
        is_probe = self.end(attempt)
        if self._open_until is not None:
            # Requests that were sent before the circuit opened say nothing new.
            if not is_probe:
                return
            self._pause_s = min(2 * self._pause_s, OPEN_MAX_S)
        else:
            self._failures += 1
            if self._failures < FAILURES_MAX and self._waited_s(attempt) < HANG_S:
                return
        self._open_until = self._timer() + self._pause_s
        _log.warning("registry_not_asked", origin=self._origin)
        self._changed(True)

    def end(self, attempt: "OriginAttempt") -> bool:
        """Note that a request is over, also one that was abandoned; True if it was the probe."""
        self._under_way.pop(attempt, None)
        is_probe = attempt is self._probe
        if is_probe:
            self._probe = None
        return is_probe

    def _waited_s(self, attempt: "OriginAttempt") -> float:
        """For how long the request has been under way without a success of any."""
        return self._timer() - max(attempt.started_at, self._succeeded_at)


class OriginAttempt(AbstractContextManager["OriginAttempt"]):
    """A request under way. One without a result at the end of the block was abandoned."""

    def __init__(self, breaker: CircuitBreaker, started_at: float) -> None:
        self.started_at = started_at
        self._breaker = breaker

    def succeed(self) -> None:
        """Note a usable answer, or one that says that there is none."""
        self._breaker.succeed(self)

    def fail(self) -> None:
        """Note that no answer came, or not all of it; changes nothing after `succeed`."""
        self._breaker.fail(self)

    def __exit__(self, *_: object) -> None:
        self._breaker.end(self)
