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

    def start(self, instant: datetime) -> datetime:
        """The start of the bucket that `instant` falls into."""
        return _EPOCH + (instant - _EPOCH) // self.length * self.length


_LENGTHS: Final = {
    Bucket.MINUTE: timedelta(minutes=1),
    Bucket.HOUR: timedelta(hours=1),
    Bucket.DAY: timedelta(days=1),
}
