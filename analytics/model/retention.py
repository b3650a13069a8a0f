"""How far back a tier reaches, and which days are past its retention."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Final

from analytics.model.instants import utc_day


class Tier(StrEnum):
    """What an organisation pays for."""

    FREE = "free"
    TEAM = "team"
    ORG = "org"
    ENTERPRISE = "enterprise"


RETENTION_DAYS: Final[dict[Tier, int | None]] = {
    Tier.FREE: 7,
    Tier.TEAM: 30,
    Tier.ORG: 365,
    Tier.ENTERPRISE: None,
}
"""Days of history by tier; None is all of it (see docs/operations.md)."""

LEFT_TIER_COUNTS: Final = timedelta(days=7)
"""How long a tier that was left still keeps what it kept: a change made by mistake, or regretted,
can be undone without a loss."""


def retention_floor(tier: Tier, now: datetime) -> datetime | None:
    """The oldest instant the tier may still see, inclusive; None when there is no limit."""
    days = RETENTION_DAYS[tier]
    return None if days is None else now - timedelta(days=days)


def tiers_held(tier: Tier, left_at: Mapping[Tier, datetime], now: datetime) -> set[Tier]:
    """`tier`, and each that was left (when, says `left_at`) within the last LEFT_TIER_COUNTS.

    Exactly that long ago still counts, and so does what a clock that has been set back since
    says was left later than now.
    """
    return {tier} | {former for former, left in left_at.items() if now - left <= LEFT_TIER_COUNTS}


def prunable_before(tiers: Iterable[Tier], now: datetime) -> date | None:
    """The UTC day before which every row is past the retention of each of `tiers`, or None.

    A day is past it when its last microsecond is: a row at the floor itself may still be seen.
    """
    kept_from: date | None = None
    for tier in tiers:
        floor = retention_floor(tier, now)
        if floor is None:
            return None
        kept_from = min(kept_from or utc_day(floor), utc_day(floor))
    return kept_from
