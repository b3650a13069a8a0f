"""Buckets of time that rows are counted in."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(StrEnum):
    """How long one bucket is; buckets begin at full minutes, hours or days, UTC."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """From one bucket's start to the next."""
        return _LENGTHS[self]

    def number(self, instant: datetime) -> int:
        """The number of the bucket that `instant` falls into, counted from 1970."""
        return (instant - _EPOCH) // self.length

    def numbered(self, number: int) -> datetime:
        """The start of the bucket with this number."""
        return _EPOCH + number * self.length

    def start(self, instant: datetime) -> datetime:
        """The start of the bucket that `instant` falls into."""
        return self.numbered(self.number(instant))


_LENGTHS: Final = {
    Bucket.MINUTE: timedelta(minutes=1),
    Bucket.HOUR: timedelta(hours=1),
    Bucket.DAY: timedelta(days=1),
}
