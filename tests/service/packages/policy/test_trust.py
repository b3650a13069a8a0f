"""Which releases have weaker provenance than earlier ones, and what is done with them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import CooldownActive, InstallAllowed, TrustDowngraded
from service.core.errors import Invalid
from service.packages.ecosystem import Provenance, Release
from service.packages.policy.advisories import Advisory, AdvisorySpec, PackageAdvisories
from service.packages.policy.document import decode_document, encode_document, parse_policy, to_json
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import PolicyDecision, difference

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
NPM, PYPI = Ecosystem.NPM, Ecosystem.PYPI
NONE, PROVED, TRUSTED = Provenance
PAD = {"ecosystem": "npm", "package": "pad"}

Listed = list[tuple[str, int, Provenance | None]]
"""Versions in any order, how many days ago they were published, and their provenance."""


def on_package(ecosystem: Ecosystem = NPM, *advisories: Advisory, **document: Any) -> PackagePolicy:
    policy = parse_policy({"trust": {}} | document)
    return CompiledPolicy(policy).on(ecosystem, "pad", PackageAdvisories(advisories))


def releases(listed: Listed, ecosystem: Ecosystem = NPM) -> list[Release]:
    return [
        Release(ecosystem, "pad", version, NOW - timedelta(days=days), provenance=level)
        for version, days, level in listed
    ]


def decided(policy: PackagePolicy, known: list[Release]) -> dict[str, PolicyDecision]:
    among = policy.among(known, NOW)
    return {each.version: among.decide(each, NOW) for each in known}


def refused(policy: PackagePolicy, known: list[Release]) -> list[str]:
    return [version for version, each in decided(policy, known).items() if each.is_refused]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param([("1.0.0", 9, NONE), ("1.1.0", 5, NONE)], [], id="nothing ever had any"),
        pytest.param([("1.0.0", 9, PROVED), ("1.1.0", 5, NONE)], ["1.1.0"], id="lost"),
        pytest.param([("1.0.0", 9, TRUSTED), ("1.1.0", 5, PROVED)], ["1.1.0"], id="weaker"),
        pytest.param([("1.0.0", 9, PROVED), ("1.1.0", 5, TRUSTED)], [], id="stronger"),
        pytest.param([("1.0.0", 9, NONE), ("1.1.0", 5, PROVED)], [], id="begins to have some"),
        pytest.param(
            [("1.0.0", 9, TRUSTED), ("1.1.0", 5, NONE), ("1.2.0", 1, TRUSTED)],
            ["1.1.0"],
            id="regained",
        ),
        pytest.param(
            [("2.0.0", 9, PROVED), ("1.0.1", 5, NONE)], ["1.0.1"], id="dates count, not versions"
        ),
        pytest.param([("1.0.0", 5, PROVED), ("1.1.0", 5, NONE)], [], id="at the same instant"),
        pytest.param([("1.0.0-rc.1", 9, PROVED), ("1.0.0", 5, NONE)], [], id="after a prerelease"),
        pytest.param(
            [("1.0.0-rc.1", 9, PROVED), ("1.0.0-rc.2", 5, NONE)], ["1.0.0-rc.2"], id="prereleases"
        ),
        pytest.param(
            [("1.0.0-rc.1", 20, PROVED), ("1.0.0", 15, PROVED), ("1.1.0", 5, NONE)],
            ["1.1.0"],
            id="a prerelease hides no stable one",
        ),
        pytest.param([("1.0.0", 9, PROVED), ("1.1.0", 5, None)], [], id="not known"),
        pytest.param([("1.0.0", 9, PROVED), ("nightly", 5, NONE)], ["nightly"], id="no version"),
    ],
)
def test_provenance_never_gets_weaker(listed: Listed, expected: list[str]) -> None:
    assert refused(on_package(), releases(listed)) == expected
    assert refused(on_package(), releases(listed[::-1])) == expected[::-1]


def test_what_is_yanked_proves_nothing() -> None:
    """An owner who withdraws the one release that had provenance starts again."""
    first, second = releases([("1.0.0", 9, PROVED), ("1.1.0", 5, NONE)])
    gone = Release(NPM, "pad", "1.0.0", first.published_at, is_yanked=True, provenance=PROVED)

    assert refused(on_package(), [gone, second]) == []


def test_a_release_without_a_date_counts_as_the_newest() -> None:
    undated = Release(NPM, "pad", "1.1.0", provenance=NONE)

    assert refused(on_package(), [*releases([("1.0.0", 9, PROVED)]), undated]) == ["1.1.0"]


def test_a_release_has_what_all_its_files_have() -> None:
    """A late wheel without provenance is refused; a project that proves a part is not."""
    listed: Listed = [("1.0", 9, PROVED), ("1.1", 5, PROVED), ("1.1", 1, NONE)]
    partly: Listed = [("1.0", 9, PROVED), ("1.0", 9, NONE), ("1.1", 5, PROVED), ("1.1", 5, NONE)]
    policy = on_package(PYPI)

    late = policy.among(releases(listed, PYPI), NOW)
    assert [late.decide(each, NOW).is_refused for each in releases(listed, PYPI)] == [0, 0, 1]
    known = releases(partly, PYPI)
    assert [policy.among(known, NOW).decide(each, NOW).is_refused for each in known] == [0] * 4


LOST: Listed = [("1.0.0", 90, TRUSTED), ("1.1.0", 30, PROVED)]


@pytest.mark.parametrize(
    ("trust", "is_refused"),
    [
        ({}, True),
        ({"action": "refuse"}, True),
        ({"action": "mark"}, False),
        ({"exempt": [PAD]}, False),
        ({"exempt": [PAD | {"versions": "1.1.x"}]}, False),
        ({"exempt": [PAD | {"versions": ["<1.1", "2.x"]}]}, True),
        ({"exempt": [PAD | {"package": "other"}]}, True),
        ({"exempt": [PAD | {"ecosystem": "pypi"}]}, True),
        ({"ignore_after_days": 31}, True),
        ({"ignore_after_days": 30}, False),
    ],
)
def test_exceptions_of_the_rule(trust: dict[str, Any], is_refused: bool) -> None:
    assert refused(on_package(trust=trust), releases(LOST)) == ["1.1.0"] * is_refused


def test_the_row_and_the_reason_say_what_was_lost() -> None:
    decision = decided(on_package(), releases(LOST))["1.1.0"]

    assert decision.envelope == TrustDowngraded(
        level_before="trusted_publisher",
        level_now="provenance",
        version_before="1.0.0",
        publisher_before=None,
        publisher_now=None,
        verified=False,
    )
    assert decision.reason == "trust downgraded: provenance, and 1.0.0 had trusted publisher"
    assert decision.rule_id is None


MAL = Advisory.of(NPM, "MAL-1", AdvisorySpec(versions=["1.1.0"]))
RULE = PAD | {"id": "mine", "versions": "1.1.0"}


@pytest.mark.parametrize(
    ("document", "event", "rule_id"),
    [
        ({"deny": [RULE]}, "blocklist_hit", "mine"),
        ({"allow": [RULE]}, "trust_downgraded", None),
        ({"allow": [RULE], "trust": None}, "install_allowed", "mine"),
        ({}, "trust_downgraded", None),
        ({"trust": None}, "cooldown_active", None),
    ],
)
def test_its_place_in_the_order(document: dict[str, Any], event: str, rule_id: str | None) -> None:
    policy = on_package(**({"cooldown": {"min_age_days": 60}} | document))
    decision = decided(policy, releases(LOST))["1.1.0"]

    assert (decision.kind, decision.rule_id) == (event, rule_id)


def test_in_audit_mode_it_refuses_nothing() -> None:
    decision = decided(on_package(mode="audit"), releases(LOST))["1.1.0"]

    assert (decision.kind, decision.is_blocked) == (TrustDowngraded.event, True)
    assert not decision.is_refused


def test_advisories_come_before_it() -> None:
    assert decided(on_package(NPM, MAL), releases(LOST))["1.1.0"].rule_id == "MAL-1"


def test_what_is_only_marked_still_waits_for_its_cooldown() -> None:
    """A mark must not open what another rule closes."""
    marked, cooldown = {"action": "mark"}, {"min_age_days": 60}
    waits = decided(on_package(trust=marked, cooldown=cooldown), releases(LOST))["1.1.0"]
    old = decided(on_package(trust=marked), releases(LOST))["1.1.0"]

    assert waits.kind == CooldownActive.event
    assert (old.kind, old.is_blocked, old.is_enforced) == (TrustDowngraded.event, True, False)


def test_a_downgraded_release_is_no_cure() -> None:
    affected = Advisory.of(NPM, "MAL-1", AdvisorySpec(versions=["1.0.0"]))
    known = releases([("1.0.0", 90, PROVED), ("1.1.0", 1, NONE), ("1.2.0", 1, PROVED)])
    policy = on_package(NPM, affected, cooldown={"min_age_days": 7, "cure": True})
    served = [v for v, each in decided(policy, known).items() if not each.is_refused]

    assert served == ["1.2.0"]


def test_time_alone_ends_it() -> None:
    """Pages are rendered again then."""
    known = releases(LOST)
    policy = on_package(trust={"ignore_after_days": 40}, cooldown={"min_age_days": 35})
    dates = [each.published_at for each in known]

    assert policy.next_change_at(dates, NOW) == NOW + timedelta(days=5)
    later = NOW + timedelta(days=10)
    assert policy.next_change_at(dates, NOW + timedelta(days=5)) == later
    assert policy.among(known, later).decide(known[1], later).envelope == InstallAllowed()


def test_pages_change_with_the_rule() -> None:
    rules: list[Any] = [None, {}, {"action": "mark"}, {"exempt": [PAD]}, {"ignore_after_days": 9}]
    versions = {on_package(trust=rule).version for rule in rules}

    assert len(versions) == len(rules)
    other = {"exempt": [PAD | {"package": "other"}]}
    assert on_package(trust=other).version == on_package(trust={}).version


def test_a_document_has_it_only_if_it_is_set() -> None:
    """Nodes of an earlier version do not know it, and refuse what they do not know."""
    trust = {
        "action": "mark",
        "exempt": [PAD | {"versions": ["<1", ">2"]}],
        "ignore_after_days": 30,
    }
    policy = parse_policy({"trust": trust})

    assert "trust" not in to_json(parse_policy({"trust": None}))
    assert to_json(policy)["trust"] == trust
    assert decode_document(encode_document(policy)) == policy
    assert difference(parse_policy({}), policy).after["trust"] == [
        "mark downgrades",
        "not after 30 days",
        "not for npm:pad <1",
        "not for npm:pad >2",
    ]


@pytest.mark.parametrize(
    ("trust", "field"),
    [
        ({"action": "off"}, "trust.action"),
        ({"ignore_after_days": 0}, "trust.ignore_after_days"),
        ({"ignore_after_days": 1.5}, "trust.ignore_after_days"),
        ({"exempt": [PAD | {"versions": "?"}]}, "trust.exempt[0].versions"),
        ({"exempt": [PAD, PAD | {"package": "A b"}]}, "trust.exempt[1].package"),
        ({"exempt": [PAD] * 301}, "trust.exempt"),
    ],
)
def test_errors_name_the_field(trust: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_policy({"trust": trust})

    assert refusal.value.field == field
