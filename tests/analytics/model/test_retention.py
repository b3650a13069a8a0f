"""Retention: how far back a tier may look, and which days may be dropped."""

from datetime import UTC, date, datetime, timedelta

import pytest

from analytics.model.instants import midnight
from analytics.model.retention import Tier, prunable_before, retention_floor, tiers_held

NOW = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)
STEP = timedelta(microseconds=1)
WEEK = timedelta(days=7)
LIMITED = [("free", 7), ("team", 30), ("org", 365)]


@pytest.mark.parametrize(("tier", "days"), LIMITED)
def test_a_tier_looks_back_this_many_days_to_the_microsecond(tier, days):
    assert retention_floor(Tier(tier), NOW) == NOW - timedelta(days=days)


def test_enterprise_looks_back_without_limit():
    assert retention_floor(Tier.ENTERPRISE, NOW) is None


def test_these_are_all_the_tiers():
    """A new one needs a floor of its own."""
    assert {tier.value for tier in Tier} == {"free", "team", "org", "enterprise"}


@pytest.mark.parametrize(("tier", "days"), LIMITED)
@pytest.mark.parametrize(
    ("last_past_the_floor", "is_prunable"), [(-STEP, False), (timedelta(0), False), (STEP, True)]
)
def test_a_day_may_be_dropped_once_its_last_microsecond_is_past_the_floor(
    tier, days, last_past_the_floor, is_prunable
):
    """At the floor itself that row may still be seen."""
    day = date(2026, 2, 20)
    last = midnight(day + timedelta(days=1)) - STEP
    now = last + timedelta(days=days) + last_past_the_floor

    before = prunable_before({Tier(tier)}, now)

    assert (day < before) is is_prunable
    assert day - timedelta(days=1) < before <= day + timedelta(days=1)


def test_the_longest_retention_decides():
    assert prunable_before([Tier.FREE, Tier.ORG, Tier.TEAM], NOW) == date(2025, 3, 4)
    assert prunable_before([Tier.ORG, Tier.FREE], NOW) == date(2025, 3, 4)
    assert prunable_before([Tier.FREE], NOW) == date(2026, 2, 25)
    assert prunable_before([Tier.FREE, Tier.ENTERPRISE], NOW) is None


@pytest.mark.parametrize(
    ("ago", "counts"),
    [
        (timedelta(0), True),
        (WEEK - STEP, True),
        (WEEK, True),
        (WEEK + STEP, False),
        (-WEEK * 100, True),
    ],
)
def test_a_tier_that_was_left_counts_for_seven_days(ago, counts):
    held = tiers_held(Tier.FREE, {Tier.ORG: NOW - ago}, NOW)

    assert held == ({Tier.FREE, Tier.ORG} if counts else {Tier.FREE})


def test_coming_back_to_a_tier_is_no_reason_to_forget_it():
    assert tiers_held(Tier.ORG, {Tier.ORG: NOW - WEEK * 9}, NOW) == {Tier.ORG}
