"""How far back an organisation's pages show audit rows."""

from dataclasses import dataclass
from datetime import datetime

from analytics.model.retention import RETENTION_DAYS, Tier, retention_floor
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class RetentionWindow:
    """How far back the organisation's rows are shown; None is unlimited."""

    tier: Tier
    days: int | None
    floor: datetime | None


def retention_window(org: Organisation, now: datetime) -> RetentionWindow:
    """The window of the tier of `org` as of `now`."""
    tier = Tier(org.tier)
    return RetentionWindow(tier, RETENTION_DAYS[tier], retention_floor(tier, now))
