"""The database's clock, as this process estimates it between two readings."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from service.core.clock import Clock, utc_now

FRESH_S: Final = 60.0
"""How long a reading is used: in a minute a computer's clock drifts by a few milliseconds."""


class DatabaseClock:
    """A clock that nodes share, even those whose own clock is wrong.

    It is not behind the database's: a time that the database has given is not in its future. It is
    ahead by no more than the quickest reading of the last minute took. Before the first reading it
    is the clock of this machine.
    """

    def __init__(
        self, machine: Clock = utc_now, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._machine = machine
        self._monotonic_s = monotonic_s
        self._zero: datetime | None = None
        """The latest that the database's clock can have shown when the monotonic one was 0."""

        self._taken_s = 0.0

    def __call__(self) -> datetime:
        """The current instant."""
        if self._zero is None:
            return self._machine()
        return self._zero + timedelta(seconds=self._monotonic_s())

    def asking(self) -> Callable[[datetime], None]:
        """Call it before the database is asked for its time, and the result with the answer."""
        asked_s = self._monotonic_s()

        def answer(now: datetime) -> None:
            # The database's clock was read between the two instants of ours.
            answered_s = self._monotonic_s()
            earliest = now - timedelta(seconds=answered_s)
            latest = now - timedelta(seconds=asked_s)
            # The known value stays while this answer allows it and is not more exact.
            is_better = self._zero is None or not earliest <= self._zero < latest
            if is_better or asked_s - self._taken_s >= FRESH_S:
                self._zero, self._taken_s = latest, asked_s

        return answer
