"""The days of the demo's history, and random numbers that are the same on every run."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from random import Random
from typing import Final

from analytics.model.instants import utc_day
from service.cli.demo.profile import Moment

HISTORY_DAYS: Final = 90
_SATURDAY: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Calendar:
    """HISTORY_DAYS days that end with the day of `now`. Nothing happens after `now`."""

    now: datetime

    @cached_property
    def days(self) -> list[date]:
        """All days, oldest first."""
        first = utc_day(self.now) - timedelta(days=HISTORY_DAYS - 1)
        return [first + timedelta(days=number) for number in range(HISTORY_DAYS)]

    @cached_property
    def workdays(self) -> list[date]:
        """The days from Monday to Friday."""
        return [day for day in self.days if is_workday(day)]

    @property
    def opened_at(self) -> datetime:
        """When the organisation was created."""
        return datetime.combine(self.days[0], time(6, 30), UTC)

    @property
    def traffic_from(self) -> datetime:
        """When the first package was installed."""
        return datetime.combine(self.days[0], time(7, 0), UTC)

    def instant(self, moment: Moment) -> datetime:
        """The instant of `moment`."""
        return datetime.combine(self.workdays[moment.workday], moment.time, UTC)


def is_workday(day: date) -> bool:
    """True from Monday to Friday."""
    return day.weekday() < _SATURDAY


def seeded(seed: int, *purpose: object) -> Random:
    """Random numbers for one purpose, independent of those drawn for others."""
    return Random("/".join(map(str, (seed, *purpose))))


def to_us(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    """The inverse of `to_us`."""
    return _EPOCH + timedelta(microseconds=microseconds)


def drawn_id(chance: Random, prefix: str) -> str:
    """An id that looks like one of `service.core.ids`, but is the same on every run."""
    return f"{prefix}_{chance.getrandbits(64):016x}"


def drawn_request_id(chance: Random, at_us: int) -> str:
    """A request id of the service's own form, which begins with the time."""
    return f"req_{at_us // 1000:012x}{chance.getrandbits(48):012x}"
