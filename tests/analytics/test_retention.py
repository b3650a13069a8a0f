"""Retention: how far back a tier may look."""

from datetime import UTC, datetime, timedelta

import pytest

from analytics.retention import Tier, retention_floor

NOW = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)


@pytest.mark.parametrize(("tier", "days"), [("free", 7), ("team", 30), ("org", 365)])
def test_a_tier_looks_back_this_many_days_to_the_microsecond(tier, days):
    """The tier's days, applied to the instant, not to the day."""
    assert retention_floor(Tier(tier), NOW) == NOW - timedelta(days=days)


def test_enterprise_looks_back_without_limit():
    """No floor at all, rather than a very old one."""
    assert retention_floor(Tier.ENTERPRISE, NOW) is None


def test_these_are_all_the_tiers():
    """A new one needs a floor of its own."""
    assert {tier.value for tier in Tier} == {"free", "team", "org", "enterprise"}
