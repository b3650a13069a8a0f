"""Which release need not wait, because advisories affect every one that is old enough."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import Cured, InstallAllowed
from service.packages.ecosystem import Release
from service.packages.policy.advisories import Advisory, AdvisorySpec, PackageAdvisories
from service.packages.policy.document import decode_document, encode_document, parse_policy, to_json
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
NPM, PYPI = Ecosystem.NPM, Ecosystem.PYPI
AGES = {"old": timedelta(days=90), "due": timedelta(days=7), "new": timedelta(days=2)}
SHA = "sha256:" + "ab" * 32

Listed = dict[str, str]
"""The age of each version: a name in AGES, or `unknown`, perhaps with `yanked`."""


def on_package(
    *advisories: dict[str, Any], ecosystem: Ecosystem = NPM, **document: Any
) -> PackagePolicy:
    """The policy on npm's or PyPI's `pad`, with a cooldown that has the cure."""
    cooldown = {"min_age_days": 7, "cure": True}
    policy = parse_policy({"cooldown": cooldown, **document})
    known = [
        Advisory.of(ecosystem, f"MAL-{number}", AdvisorySpec(**spec))
        for number, spec in enumerate(advisories, 1)
    ]
    return CompiledPolicy(policy).on(ecosystem, "pad", PackageAdvisories(known))


def releases(listed: Listed, ecosystem: Ecosystem = NPM) -> list[Release]:
    found = []
    for version, words in listed.items():
        age, _, rest = words.partition(" ")
        at = NOW - AGES[age] if age in AGES else None
        found.append(Release(ecosystem, "pad", version, at, is_yanked=rest == "yanked"))
    return found


def allowed(policy: PackagePolicy, listed: Listed, ecosystem: Ecosystem = NPM) -> list[str]:
    """The versions that would be served, of all that are listed."""
    known = releases(listed, ecosystem)
    among = policy.among(known, NOW)
    return [each.version for each in known if not among.decide(each, NOW).is_refused]


def up_to(version: str) -> dict[str, Any]:
    return {"ranges": [[("introduced", "0"), ("last_affected", version)]]}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param({"1.0.0": "old", "1.1.0": "new"}, ["1.1.0"], id="the fixed one"),
        pytest.param(
            {"1.0.0": "old", "1.2.0": "new", "1.1.0": "new"}, ["1.1.0"], id="the lowest of them"
        ),
        pytest.param({"1.0.0": "due", "1.1.0": "new"}, ["1.1.0"], id="old enough by a hair"),
        pytest.param(
            {"1.0.0": "old", "1.1.0": "old", "1.2.0": "new"}, ["1.1.0"], id="one is not affected"
        ),
        pytest.param({"1.0.0": "new", "1.1.0": "new"}, [], id="nothing is old enough"),
        pytest.param({"1.0.0": "old", "0.9.0": "new"}, [], id="below what is affected"),
        pytest.param({"1.0.0": "old", "1.1.0": "unknown"}, ["1.1.0"], id="of unknown age"),
        pytest.param(
            {"1.0.0": "old", "1.1.0-rc.1": "new", "1.1.0": "new"},
            ["1.1.0"],
            id="a prerelease is no cure",
        ),
        pytest.param(
            {"1.0.0": "old", "1.1.0-rc.1": "old", "1.1.0": "new"},
            ["1.1.0-rc.1", "1.1.0"],
            id="a prerelease is no release that is left",
        ),
        pytest.param(
            {"1.0.0-a.1": "old", "1.1.0-rc.1": "new", "1.1.0": "new"},
            ["1.1.0-rc.1"],
            id="nothing but prereleases before",
        ),
        pytest.param(
            {"1.0.0": "old", "1.1.0": "old yanked", "1.2.0": "new"},
            ["1.1.0", "1.2.0"],
            id="a yanked one is no release that is left",
        ),
        pytest.param(
            {"1.0.0": "old", "1.1.0": "new yanked", "1.2.0": "new"},
            ["1.2.0"],
            id="a yanked one is no cure",
        ),
        pytest.param(
            {"1.0.0": "old", "nightly": "old", "1.1.0": "new"},
            ["1.1.0"],
            id="what is no version does not count",
        ),
    ],
)
def test_the_lowest_fixed_release_need_not_wait(listed: Listed, expected: list[str]) -> None:
    assert allowed(on_package(up_to("1.0.0")), listed) == expected


@pytest.mark.parametrize(
    ("spec", "listed", "expected"),
    [
        (up_to("1.0"), {"1.0": "old", "1.0.post1": "new", "1.1": "new"}, ["1.0.post1"]),
        (up_to("1.0"), {"1.0": "old", "1.1rc1": "new", "1.1": "new"}, ["1.1"]),
        ({"versions": ["1.0"]}, {"1.0": "old", "1!0.1": "new"}, ["1!0.1"]),
    ],
)
def test_versions_are_compared_as_pypi_does(
    spec: dict[str, Any], listed: Listed, expected: list[str]
) -> None:
    assert allowed(on_package(spec, ecosystem=PYPI), listed, PYPI) == expected


def test_files_are_judged_one_by_one() -> None:
    """A late wheel of an affected release is no cure, nor is one that an advisory names."""
    policy = on_package({"versions": ["1.0"], "digests": [SHA]}, ecosystem=PYPI)
    old, new = NOW - AGES["old"], NOW - AGES["new"]
    late = Release(PYPI, "pad", "1.0", new)
    bad = Release(PYPI, "pad", "1.1", new, frozenset({SHA}))
    good, other = Release(PYPI, "pad", "1.1", new), Release(PYPI, "pad", "1.2", new)
    known = [Release(PYPI, "pad", "1.0", old), late, bad, good, other]

    among = policy.among(known, NOW)

    assert [each for each in known if not among.decide(each, NOW).is_blocked] == [good]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, ["1.1.0"]),
        ({"cooldown": {"min_age_days": 7}}, []),
        ({"cooldown": None}, ["1.1.0", "1.2.0"]),
        ({"deny": [{"ecosystem": "npm", "package": "pad", "versions": "1.1.0"}]}, ["1.2.0"]),
        ({"allow": [{"ecosystem": "npm", "package": "pad"}]}, ["1.1.0", "1.2.0"]),
    ],
)
def test_other_rules_keep_their_word(document: dict[str, Any], expected: list[str]) -> None:
    listed = {"1.0.0": "old", "1.1.0": "new", "1.2.0": "new"}

    assert allowed(on_package(up_to("1.0.0"), **document), listed) == expected


def test_what_only_a_deny_rule_blocks_needs_no_cure() -> None:
    """A deny rule must not lift the cooldown of other releases."""
    deny = [{"ecosystem": "npm", "package": "pad", "versions": "<=1.0.0"}]
    listed = {"0.9.0": "old", "1.0.0": "old", "1.1.0": "new"}

    assert allowed(on_package({"versions": ["1.0.0"]}, deny=deny), listed) == []
    assert allowed(on_package(up_to("1.0.0"), deny=deny), listed) == ["1.1.0"]


def test_the_row_says_why() -> None:
    known = releases({"1.0.0": "old", "1.0.1": "old", "1.1.0": "new"})
    policy = on_package({"versions": ["1.0.0"]}, {"versions": ["1.0.1"]})

    decision = policy.among(known, NOW).decide(known[-1], NOW)

    assert decision.envelope == InstallAllowed(cured=Cured(affected="1.0.1", advisory_id="MAL-2"))
    assert decision.rule_id is None
    assert decision.reason == "the cure: no older release is without advisory, 1.0.1 has MAL-2"


def test_without_the_list_of_releases_nothing_is_the_cure() -> None:
    (young,) = releases({"1.1.0": "new"})

    assert on_package(up_to("1.0.0")).decide(young, NOW).is_blocked


def test_time_ends_the_cure_as_it_ends_the_cooldown() -> None:
    """Once the fix is old enough it is no exception any more, and the next one waits."""
    known = releases({"1.0.0": "old", "1.1.0": "new", "1.2.0": "new"})
    policy = on_package(up_to("1.0.0"))
    published_ats = [each.published_at for each in known]
    later = policy.next_change_at(published_ats, NOW)

    assert later == NOW + timedelta(days=5)
    decisions = [policy.among(known, later).decide(each, later) for each in known]
    assert [each.is_blocked for each in decisions] == [True, False, False]
    assert decisions[1].envelope == InstallAllowed()


def test_pages_of_policies_with_and_without_it_are_different_ones() -> None:
    """But those of packages without advisories, which have no cure, are not."""
    cooldown, affected = {"min_age_days": 7}, up_to("1.0.0")

    assert on_package(affected).version != on_package(affected, cooldown=cooldown).version
    assert on_package().version == on_package(cooldown=cooldown).version


def test_a_document_has_it_only_if_it_is_set() -> None:
    """Nodes of an earlier version do not know it, and refuse what they do not know."""
    with_it = parse_policy({"cooldown": {"min_age_days": 7, "cure": True}})
    without = parse_policy({"cooldown": {"min_age_days": 7, "cure": False}})

    assert to_json(without)["cooldown"] == {"min_age_days": 7, "exempt": []}
    assert decode_document(encode_document(with_it)) == with_it
    assert with_it.lines["cooldown"] == ["7 days", "not for the cure"]
