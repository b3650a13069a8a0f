"""The database's clock as a node knows it: not behind, and hardly ahead."""

from datetime import UTC, datetime, timedelta

from service.store.postgres.probe import FRESH_S, DatabaseClock
from tests.conftest import START

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


class Machine:
    """A machine with a clock that is ten minutes off, and the database's beside it."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.ahead = 0.0
        self.clock = DatabaseClock(lambda: START, lambda: self.seconds)

    @property
    def database_time(self) -> datetime:
        return ZERO + timedelta(seconds=self.seconds + self.ahead)

    def look(self, there: float, back: float) -> None:
        """Ask the database, with so many seconds on the way."""
        answer = self.clock.asking()
        self.seconds += there
        now = self.database_time
        self.seconds += back
        answer(now)

    @property
    def error_s(self) -> float:
        return round((self.clock() - self.database_time).total_seconds(), 6)


def test_before_the_first_look_it_is_the_machines():
    """There is nothing else, and nothing stored yet to compare with."""
    assert Machine().clock() == START


def test_it_is_ahead_by_no_more_than_a_look_takes():
    """A time that the database has given is not in its future."""
    machine = Machine()
    machine.look(there=0.003, back=0.2)
    assert machine.error_s == 0.003
    machine.seconds += 10
    assert machine.error_s == 0.003


def test_the_quickest_look_counts():
    machine = Machine()
    machine.look(there=2.0, back=0.1)
    machine.look(there=0.001, back=0.001)
    machine.look(there=1.0, back=0.1)
    assert machine.error_s == 0.001


def test_a_look_counts_for_a_while():
    machine = Machine()
    machine.look(there=0.001, back=0.001)
    machine.seconds += FRESH_S
    machine.look(there=0.5, back=0.1)
    assert machine.error_s == 0.5


def test_a_machine_that_slept_is_not_behind():
    """Its monotonic clock was stopped meanwhile, and the database's did not."""
    machine = Machine()
    machine.look(there=0.001, back=0.001)
    machine.ahead = 3600.0
    machine.look(there=0.2, back=0.1)
    assert machine.error_s == 0.2


def test_a_database_whose_clock_is_set_back_is_followed():
    machine = Machine()
    machine.look(there=0.001, back=0.001)
    machine.ahead = -5.0
    machine.look(there=0.2, back=0.1)
    assert machine.error_s == 0.2
