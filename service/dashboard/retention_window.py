"""How far back a page of an organisation may look."""

from dataclasses import dataclass
from datetime import datetime

from analytics.model.retention import RETENTION_DAYS, Tier, retention_floor
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Kept:
    """How far back the organisation's rows reach; None is without an end."""

    tier: Tier
    days: int | None
    floor: datetime | None


def kept_by(org: Organisation, now: datetime) -> Kept:
    """What the tier of `org` keeps as of `now`."""
    tier = Tier(org.tier)
    return Kept(tier, RETENTION_DAYS[tier], retention_floor(tier, now))
