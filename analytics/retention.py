"""How far back a tier may look."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


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


def retention_floor(tier: Tier, now: datetime) -> datetime | None:
    """The oldest instant the tier may still see, inclusive; None when there is no limit."""
    days = RETENTION_DAYS[tier]
    return None if days is None else now - timedelta(days=days)
