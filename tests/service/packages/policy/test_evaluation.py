"""What is decided on a release, and in what order the rules speak."""

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, CooldownActive, InstallAllowed, OssFirstParty
from analytics.model.events import Event
from service.packages.ecosystem import Release
from service.packages.names import canonical_name
from service.packages.policy.advisories import Advisory, AdvisorySpec, PackageAdvisories
from service.packages.policy.document import parse_policy
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import NO_POLICY, InstallPolicy, PolicyDecision

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=400)
SHA = "sha256:" + "ab" * 32

DENY = {"ecosystem": "npm", "package": "left-pad", "versions": "<1.3.0", "id": "no-old"}
ALLOW = {"ecosystem": "npm", "package": "left-pad", "id": "we-trust"}
FIRST = {"ecosystem": "npm", "package": "left-*", "registry": "npm.acme.example"}
COOLDOWN = {"min_age_days": 7}


def advisory(ecosystem: Ecosystem = Ecosystem.NPM, **spec: Any) -> Advisory:
    """MAL-1, which says `spec`."""
    return Advisory.of(ecosystem, "MAL-1", AdvisorySpec(**spec))


EVERYTHING = advisory(ranges=[[("introduced", "0")]])


def decided(
    document: dict[str, Any],
    version: str = "1.2.0",
    *advisories: Advisory,
    name: str = "left-pad",
    ecosystem: Ecosystem = Ecosystem.NPM,
    published_at: datetime | None = OLD,
    digests: frozenset[str] = frozenset(),
) -> PolicyDecision:
    """The decision on one release under the policy of `document`."""
    name = canonical_name(ecosystem, name)
    release = Release(ecosystem, name, version, published_at, digests)
    return policy_on(parse_policy(document), *advisories, name=name, ecosystem=ecosystem).decide(
        release, NOW
    )


def policy_on(
    policy: InstallPolicy,
    *advisories: Advisory,
    name: str = "left-pad",
    ecosystem: Ecosystem = Ecosystem.NPM,
) -> PackagePolicy:
    """What the policy and the advisories say about a package."""
    return CompiledPolicy(policy).on(ecosystem, name, PackageAdvisories(advisories))


def test_without_a_policy_what_nothing_speaks_against_is_allowed() -> None:
    release = Release(Ecosystem.PYPI, "requests", "not a version")

    decision = CompiledPolicy(NO_POLICY).on(Ecosystem.PYPI, "requests").decide(release, NOW)

    assert decision.kind == InstallAllowed.event
    assert not decision.is_blocked


@pytest.mark.parametrize(
    ("removed", "kind", "rule_id"),
    [
        ([], OssFirstParty.event, None),
        (["first_party"], BlocklistHit.event, "no-old"),
        (["first_party", "deny"], BlocklistHit.event, "MAL-1"),
        (["first_party", "deny", "osv"], InstallAllowed.event, "we-trust"),
        (["first_party", "deny", "osv", "allow"], CooldownActive.event, None),
        (["first_party", "deny", "osv", "allow", "cooldown"], InstallAllowed.event, None),
    ],
)
def test_the_order_of_the_rules(removed: list[str], kind: Event, rule_id: str | None) -> None:
    document = {"first_party": [FIRST], "deny": [DENY], "allow": [ALLOW], "cooldown": COOLDOWN}
    document = {name: rules for name, rules in document.items() if name not in removed}
    advisories = [] if "osv" in removed else [EVERYTHING]

    decision = decided(document, "1.2.0", *advisories, published_at=NOW)

    assert (decision.kind, decision.rule_id) == (kind, rule_id)


def test_the_envelopes_are_those_of_the_contract() -> None:
    """SPEC.md's table of envelopes, key by key."""
    denied = decided({"deny": [DENY]}).envelope
    advised = decided({}, "1.2.0", EVERYTHING).envelope
    first = decided({"first_party": [FIRST]}).envelope
    young = decided({"cooldown": COOLDOWN}, published_at=NOW - timedelta(days=6)).envelope

    assert [_keys(envelope) for envelope in (denied, advised, first, young)] == [
        {"rule_id": "no-old", "source": "operator"},
        {"rule_id": "MAL-1", "source": "osv"},
        {"registry": "npm.acme.example"},
        {"published_at": "2026-06-25T12:00:00.000Z", "min_age_days": 7},
    ]


def _keys(envelope: Any) -> dict[str, Any]:
    return {name: getattr(envelope, name) for name in envelope.__struct_fields__}


def test_allow_lifts_the_cooldown_alone() -> None:
    """An exception never opens the door to what is denied or known to be malicious."""
    document = {"deny": [DENY], "allow": [ALLOW], "cooldown": COOLDOWN}

    assert decided(document, "1.2.0").rule_id == "no-old"
    assert decided(document, "1.3.0", EVERYTHING).rule_id == "MAL-1"
    assert decided(document, "1.3.0", published_at=NOW).kind == InstallAllowed.event


def test_audit_mode_decides_the_same_and_refuses_nothing() -> None:
    enforced = decided({"deny": [DENY]})
    audited = decided({"deny": [DENY], "mode": "audit"})

    assert enforced.is_refused
    assert audited.is_blocked
    assert not audited.is_refused
    assert audited.envelope == enforced.envelope


@pytest.mark.parametrize(
    ("age", "kind"),
    [
        (timedelta(days=7), InstallAllowed.event),
        (timedelta(days=7) - timedelta(microseconds=1), CooldownActive.event),
        (timedelta(days=-1), CooldownActive.event),
        (None, CooldownActive.event),
    ],
)
def test_how_old_is_old_enough(age: timedelta | None, kind: Event) -> None:
    """What has no date of publication is too young: a registry that hides it gains nothing."""
    published_at = None if age is None else NOW - age

    assert decided({"cooldown": COOLDOWN}, published_at=published_at).kind is kind


def test_the_reason_says_when_it_was_published() -> None:
    reasons = [decided({"cooldown": COOLDOWN}, published_at=at).reason for at in (NOW, None)]

    assert reasons == [
        "too new: published 2026-07-01T12:00:00.000Z, and releases must be 7 days old",
        "too new: its publication is not known, and releases must be 7 days old",
    ]


def test_exempt_packages_need_not_wait() -> None:
    exempt = [{"ecosystem": "npm", "package": "left-*"}]
    document = {"cooldown": {"min_age_days": 7, "exempt": exempt}}

    assert not decided(document, published_at=NOW).is_blocked
    assert decided(document, ecosystem=Ecosystem.PYPI, published_at=NOW).is_blocked


def test_an_exception_of_versions_holds_for_these_alone() -> None:
    document = {"allow": [ALLOW | {"versions": "1.2.x"}], "cooldown": COOLDOWN}

    kinds = {text: decided(document, text, published_at=NOW).kind for text in ("1.2.9", "1.3", "x")}

    assert kinds == {
        "1.2.9": InstallAllowed.event,
        "1.3": CooldownActive.event,
        "x": CooldownActive.event,
    }


@pytest.mark.parametrize("version", ["", "latest", "1.2", "１.9.0", "9" * 300, "1.9.0 || 1"])
def test_a_version_that_cannot_be_read_is_in_every_range_of_its_package(version: str) -> None:
    """It cannot be shown to lie outside."""
    fixed = advisory(ranges=[[("introduced", "1.0.0"), ("fixed", "1.0.1")]])

    assert decided({"deny": [DENY]}, version).rule_id == "no-old"
    assert decided({}, version, fixed).rule_id == "MAL-1"
    assert not decided({}, version, advisory(versions=["1.0.0"])).is_blocked
    assert not decided({"deny": [DENY]}, version, name="right-pad").is_blocked


@pytest.mark.parametrize("version", ["1.0", "v1", "1.0.0", "1.0+evil", " 1.0.0.0\n", "0!1.0"])
@pytest.mark.parametrize("name", ["Foo_Bar", "foo.bar", "FOO--BAR"])
def test_nothing_gets_past_a_rule_by_spelling_on_pypi(name: str, version: str) -> None:
    deny = {"deny": [{"ecosystem": "pypi", "package": "foo-bar", "versions": "==1.0"}]}
    listed = advisory(Ecosystem.PYPI, versions=["1.0.0"])
    last = advisory(Ecosystem.PYPI, ranges=[[("introduced", "1.0"), ("last_affected", "1")]])
    of_pypi: dict[str, Any] = {"name": name, "ecosystem": Ecosystem.PYPI}

    assert decided(deny, version, **of_pypi).is_refused
    assert decided({}, version, listed, **of_pypi).is_refused
    assert decided({}, version, last, **of_pypi).is_refused


@pytest.mark.parametrize("version", ["1.0.0", "v1.0.0", "=1.0.0", "1.0.0+x", " 1.0.0", "01.0.0"])
def test_nothing_gets_past_a_rule_by_spelling_on_npm(version: str) -> None:
    """Build metadata is no part of a version."""
    deny = {"deny": [DENY | {"versions": "1.0.0"}]}

    assert decided(deny, version).is_refused
    assert decided({}, version, advisory(versions=["1.0.0+y"])).is_refused


def test_a_file_is_found_by_its_digest() -> None:
    listed = advisory(versions=["1.0.0"], digests=[SHA])

    assert decided({}, "9.9.9", listed, digests=frozenset({SHA, "sha1:" + "0" * 40})).is_refused
    assert not decided({}, "9.9.9", listed, digests=frozenset({"sha1:" + "0" * 40})).is_blocked


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        ([("introduced", "0")], ["0.0.0-alpha", "1.0.0", "99.0.0"], []),
        ([("introduced", "1.0.0")], ["1.0.0", "2.0.0"], ["1.0.0-rc.1", "0.9.0"]),
        (
            [("fixed", "1.2.0"), ("introduced", "1.0.0")],
            ["1.0.0", "1.1.9", "1.2.0-rc.1"],
            ["0.9.0", "1.2.0", "1.3.0"],
        ),
        (
            [("introduced", "1.0.0"), ("last_affected", "1.2.0")],
            ["1.0.0", "1.2.0", "1.2.0+x"],
            ["1.2.1-0", "1.2.1"],
        ),
        ([("introduced", "1.0.0"), ("last_affected", "1.0.0")], ["1.0.0"], ["1.0.1", "0.9.9"]),
        (
            [
                ("introduced", "0"),
                ("fixed", "1.0.0"),
                ("introduced", "2.0.0"),
                ("fixed", "2.1.0"),
            ],
            ["0.1.0", "2.0.0", "2.0.9"],
            ["1.0.0", "1.9.9", "2.1.0"],
        ),
        ([("introduced", "0"), ("limit", "2.0.0")], ["1.9.9", "2.0.0-rc.1"], ["2.0.0", "3.0.0"]),
        ([("introduced", "0"), ("limit", "*")], ["3.0.0"], []),
        ([("limit", "*"), ("introduced", "0"), ("fixed", "1.0.0")], ["0.1.0"], ["1.0.0"]),
    ],
)
def test_the_ranges_of_an_advisory(
    events: list[tuple[str, str]], inside: list[str], outside: list[str]
) -> None:
    """The evaluation that OSV's schema describes, whatever the order of the events."""
    for order in (events, events[::-1]):
        speaks = advisory(ranges=[order])
        hit = [text for text in [*inside, *outside] if decided({}, text, speaks).is_blocked]
        assert hit == inside


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True), st.integers(0, 9))
def test_introduced_and_fixed_enclose_a_half_open_range(bounds: list[int], minor: int) -> None:
    low, high = sorted(bounds)
    events = [("introduced", f"1.{low}.0"), ("fixed", f"1.{high}.0")]
    for ecosystem in Ecosystem:
        decision = decided({}, f"1.{minor}.0", advisory(ecosystem, ranges=[events]),
                           ecosystem=ecosystem)  # fmt: skip
        assert decision.is_blocked is (low <= minor < high)


def test_when_time_alone_changes_a_decision() -> None:
    """The end of the first cooldown under way; nothing for what is old or has no date."""
    policy = policy_on(parse_policy({"cooldown": COOLDOWN}))
    young, younger = NOW - timedelta(days=3), NOW - timedelta(days=1)

    assert policy.next_change_at([None, OLD, younger, young], NOW) == young + timedelta(days=7)
    assert policy.next_change_at([None, OLD], NOW) is None
    assert policy.next_change_at([datetime.max.replace(tzinfo=UTC)], NOW) is None
    assert policy_on(NO_POLICY).next_change_at([young], NOW) is None


def _version(policy: InstallPolicy, *advisories: Advisory) -> str:
    return policy_on(policy, *advisories).version


def test_the_version_of_a_policy_changes_with_what_it_decides() -> None:
    """Documents of packages that other rules name stay cached."""
    base = parse_policy({"deny": [DENY]})
    elsewhere = parse_policy({"deny": [DENY, DENY | {"package": "other", "id": "x"}]})
    others = [
        {"deny": [DENY | {"versions": "<1.2.0"}]},
        {"deny": [DENY | {"reason": "old"}]},
        {"deny": [DENY], "mode": "audit"},
        {"deny": [DENY], "cooldown": COOLDOWN},
        {"deny": [DENY], "allow": [ALLOW]},
        {"deny": [DENY], "first_party": [FIRST]},
    ]

    versions = [_version(parse_policy(document)) for document in others]
    versions += [_version(base, EVERYTHING), _version(base, advisory(versions=["1.0.0"]))]

    assert _version(elsewhere) == _version(base)
    assert len({_version(base), *versions}) == len(versions) + 1


def calls_to_decide(policy: PackagePolicy, releases: int) -> int:
    """How many functions are called to decide on so many releases, as a page of them does."""
    calls = Counter[str]()
    sys.setprofile(lambda _, event, __: calls.update([event]))
    try:
        for number in range(releases):
            policy.decide(Release(Ecosystem.NPM, "left-pad", f"1.{number}.0", OLD), NOW)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def test_a_page_costs_the_same_with_many_ranges_as_with_one() -> None:
    """What decides on each release is one search in all ranges, however many a policy has."""
    deny = [DENY | {"id": str(rule)} for rule in range(100)]
    ranges = [f"<0.{number}" for number in range(32)]
    one = policy_on(parse_policy({"deny": [DENY | {"versions": "<0.1"}]}))
    many = policy_on(parse_policy({"deny": [rule | {"versions": ranges} for rule in deny]}))

    assert many.deny.ranges == 3_200
    assert 1_000 < calls_to_decide(many, 1_000) <= 1.1 * calls_to_decide(one, 1_000)
