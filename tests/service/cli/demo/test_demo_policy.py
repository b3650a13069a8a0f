"""The demo's install policy decides as its history says."""

from datetime import timedelta

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, InstallAllowed
from service.cli.demo.calendar import Calendar
from service.cli.demo.installs import install_policy
from service.cli.demo.packages import open_markets
from service.cli.demo.profile import load_profile
from service.packages.ecosystem import Release
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.model import PolicyDecision
from tests.issuers.issuer import START

PROFILE = load_profile()
RULES = [*PROFILE.blocklist, PROFILE.incident.rule]
AFTER = CompiledPolicy(install_policy(PROFILE, is_after_incident=True))


def release(ecosystem: str, name: str, version: str, days: int = 400) -> Release:
    published_at = START - timedelta(days=days)
    return Release(Ecosystem(ecosystem), name, version, published_at, frozenset())


def decide(policy: CompiledPolicy, wanted: Release) -> PolicyDecision:
    return policy.on(wanted.ecosystem, wanted.name).decide(wanted, START)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule_id)
def test_each_rule_of_the_rows_is_in_the_policy(rule):
    decision = decide(AFTER, release(rule.ecosystem, rule.package, rule.version))

    assert (decision.kind, decision.rule_id) == (BlocklistHit.event, rule.rule_id)
    assert rule.reason in decision.reason


def test_the_incident_s_rule_was_not_there_before():
    """Otherwise the package would not have got through."""
    before = CompiledPolicy(install_policy(PROFILE, is_after_incident=False))
    rule = PROFILE.incident.rule
    decision = decide(before, release(rule.ecosystem, rule.package, rule.version))

    assert decision.kind == InstallAllowed.event


def test_what_the_rows_allow_the_policy_allows():
    for ecosystem, market in open_markets(PROFILE, Calendar(START)).items():
        for package in (*market.packages, *market.first_party):
            for verdict in (*package.older, package.newest):
                wanted = release(ecosystem, verdict.package, verdict.version)
                assert decide(AFTER, wanted).kind == verdict.event, verdict
        young = release(ecosystem, market.packages[0].newest.package, "1.0", days=1)
        assert decide(AFTER, young).envelope.min_age_days == 7
