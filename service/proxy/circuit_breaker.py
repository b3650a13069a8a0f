"""Decides when a registry is asked and when it is spared, from what became of earlier requests.

Pure: instants are seconds of any steady clock, passed in by the caller.

A registry that fails several times in a row, or leaves a request without an answer for long, is not
asked for a while (open). Then one request at a time may try again (half-open): its success ends the
outage, its failure makes the next pause longer. Any success closes the circuit.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FAILURES_MAX: Final = 3
"""Failures in a row that open the circuit."""

HANG_S: Final = 5.0
"""A request that fails after so long, during which none succeeded, opens the circuit by itself."""

STALL_S: Final = 1.0
"""After so long without a success, a request under way makes the registry suspect."""

OPEN_S: Final = 5.0
OPEN_MAX_S: Final = 30.0
"""The first pause; each failed probe doubles it up to the maximum."""


class CircuitState(StrEnum):
    """Whether requests are sent."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


WORST_FIRST: Final = (CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED)


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A request that was sent."""

    started_at: float


class CircuitBreaker:
    """The requests to one server. Each `begin` is followed by `succeed`, `fail` or `give_up`."""

    def __init__(self) -> None:
        self._under_way: dict[Attempt, None] = {}
        self._succeeded_at = -math.inf
        self._failures = 0
        self._pause_s = OPEN_S
        self._open_until: float | None = None
        self._probe: Attempt | None = None

    def state(self, now: float) -> CircuitState:
        """The state as of `now`."""
        if self._open_until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._open_until else CircuitState.HALF_OPEN

    def admits(self, now: float) -> bool:
        """True if `begin` would return an attempt."""
        state = self.state(now)
        return state is CircuitState.CLOSED or (
            state is CircuitState.HALF_OPEN and self._probe is None
        )

    def is_suspect(self, now: float) -> bool:
        """True if an answer should not be waited for by those who can do without.

        The circuit is not closed, or a request has been under way for STALL_S without a success.
        """
        if self._open_until is not None:
            return True
        oldest = next(iter(self._under_way), None)
        return oldest is not None and now - self._waits_since(oldest) >= STALL_S

    def begin(self, now: float) -> Attempt | None:
        """A request that may be sent now; None if none may."""
        if not self.admits(now):
            return None
        attempt = Attempt(now)
        self._under_way[attempt] = None
        if self._open_until is not None:
            self._probe = attempt
        return attempt

    def succeed(self, attempt: Attempt, now: float) -> None:
        """Note a usable answer, or one that says that there is none."""
        self._forget(attempt)
        self._succeeded_at = now
        self._failures = 0
        self._pause_s = OPEN_S
        self._open_until = None
        self._probe = None

    def fail(self, attempt: Attempt, now: float) -> bool:
        """Note that there was no answer, or not all of it. True if this opens the circuit."""
        is_probe = self._forget(attempt)
        if self._open_until is not None:
            # Requests that were sent before the circuit opened say nothing new.
            if is_probe:
                self._pause_s = min(2 * self._pause_s, OPEN_MAX_S)
                self._open_until = now + self._pause_s
            return is_probe
        self._failures += 1
        hung = now - self._waits_since(attempt) >= HANG_S
        if self._failures < FAILURES_MAX and not hung:
            return False
        self._open_until = now + self._pause_s
        return True

    def give_up(self, attempt: Attempt) -> None:
        """Note that the request was abandoned for reasons that are not the server's."""
        self._forget(attempt)

    def _waits_since(self, attempt: Attempt) -> float:
        return max(attempt.started_at, self._succeeded_at)

    def _forget(self, attempt: Attempt) -> bool:
        """End the attempt; True if it was the probe."""
        self._under_way.pop(attempt, None)
        is_probe = attempt is self._probe
        if is_probe:
            self._probe = None
        return is_probe
