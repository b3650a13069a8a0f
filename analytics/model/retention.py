"""Retention: how far back a tier reaches, and which days are past that."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Final

from analytics.model.instants import midnight, utc_day


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
"""How long the retention of a former tier still counts, so that a change made by mistake can be
undone without a loss."""

PRUNE_DELAY: Final = timedelta(hours=48)
"""How long after its retention a day is deleted, so that a clock that is ahead by no more than this
deletes nothing early. Its rows are hidden meanwhile."""


def retention_floor(tier: Tier, now: datetime) -> datetime | None:
    """The oldest instant that the tier shows, inclusive; None if there is no limit."""
    days = RETENTION_DAYS[tier]
    return None if days is None else now - timedelta(days=days)


def tiers_held(tier: Tier, left_at: Mapping[Tier, datetime], now: datetime) -> set[Tier]:
    """`tier`, and each former tier that was left (see `left_at`) within LEFT_TIER_COUNTS.

    Exactly that long ago still counts, and so does what a clock that has been set back since
    says was left later than now.
    """
    return {tier} | {former for former, left in left_at.items() if now - left <= LEFT_TIER_COUNTS}


def prunable_before(tiers: Iterable[Tier], now: datetime) -> date | None:
    """The UTC day before which every row is past the retention of each of `tiers`, or None.

    A day is past it only if its last microsecond is: a row at the floor itself is still shown.
    """
    kept_from: date | None = None
    for tier in tiers:
        floor = retention_floor(tier, now)
        if floor is None:
            return None
        kept_from = min(kept_from or utc_day(floor), utc_day(floor))
    return kept_from


def kept_for(tier: Tier) -> timedelta | None:
    """How long after its UTC day a row is stored, if the tier stays as it is; None: no end."""
    days = RETENTION_DAYS[tier]
    return None if days is None else timedelta(days=days) + PRUNE_DELAY


def pruned_at(tier: Tier, day: date) -> datetime | None:
    """From when on rows of the UTC `day` are deleted, if the tier stays as it is; None: never."""
    kept = kept_for(tier)
    return None if kept is None else midnight(day + timedelta(days=1)) + kept
