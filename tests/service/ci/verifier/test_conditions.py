"""Conditions of bindings: claims that a token must have besides its subject."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ci.issuers.issuers import Issuer
from service.ci.verifier.candidates import BindingTerms, candidates_of
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import FailureCode, TokenRejected
from service.ci.verifier.rules import VerificationContext, match_binding
from tests.service.ci.verifier.test_proved_jobs import AUDIENCE, ISSUERS

GITHUB: Issuer = next(issuer for issuer in ISSUERS if issuer.name == "github")
SUB = "repo:acme/app:ref:refs/heads/main"


def terms(name: str, conditions: dict[str, str] | None, **changes: Any) -> BindingTerms:
    """A binding of the organisation for SUB, with `changes`."""
    org = BindingTerms(name, None, None, GITHUB.url, SUB, "1", [], "org_admin", conditions)
    return replace(org, **changes)


def matched(bindings: list[BindingTerms], **claims: Any) -> str | TokenRejected:
    """The id of the binding that a token with `claims` matches, or the rejection."""
    members = {
        "iss": GITHUB.url,
        "aud": AUDIENCE,
        "sub": SUB,
        "repository_id": "1",
        "event_name": "push",
    }
    context = VerificationContext({GITHUB.url: GITHUB}, AUDIENCE, candidates_of(bindings), "prj_1")
    try:
        return match_binding(UnverifiedClaims(members | claims), context)[1].id
    except TokenRejected as rejection:
        return rejection


@pytest.mark.parametrize("value", ["staging", "Production", "production ", "", 1, True, None, []])
def test_another_value_is_rejected_without_detail(value: object):
    """A text of exactly this spelling: nothing else is the same environment."""
    binding = terms("b", {"environment": "production"})

    rejection = matched([binding], environment=value)

    assert matched([binding], environment="production") == "b"
    assert isinstance(rejection, TokenRejected)
    assert (rejection.code, rejection.rule) == (FailureCode.UNBOUND_OIDC_SUBJECT, 5)
    assert rejection.detail is None
    assert rejection.is_by_condition


def test_an_absent_claim_meets_no_condition():
    assert isinstance(matched([terms("b", {"environment": "production"})]), TokenRejected)


def test_all_conditions_must_hold():
    both = terms("b", {"environment": "production", "ref": "refs/heads/main"})

    assert matched([both], environment="production", ref="refs/heads/main") == "b"
    assert isinstance(matched([both], environment="production"), TokenRejected)
    assert isinstance(matched([both], ref="refs/heads/main"), TokenRejected)


def test_a_team_lies_within_the_conditions_of_its_envelope():
    """The organisation trusts production alone: no team's binding may trust more."""
    org = terms("org", {"environment": "production"})
    team = terms("team", None, team_id="team_1", origin="team_admin")

    assert matched([org, team], environment="production") == "team"
    assert isinstance(matched([org, team], environment="staging"), TokenRejected)
    assert isinstance(matched([org, team]), TokenRejected)


def test_a_team_can_narrow_its_envelope_further():
    org = terms("org", {"environment": "production"})
    narrower = {"ref": "refs/heads/main"}
    team = terms("team", narrower, team_id="team_1", origin="team_admin")

    assert matched([org, team], environment="production", ref="refs/heads/main") == "team"
    assert matched([org, team], environment="production", ref="refs/heads/x") == "org"


def test_an_events_rejection_comes_before_that_of_a_condition():
    binding = terms("b", {"environment": "production"}, event_names=["schedule"])

    rejection = matched([binding])

    assert isinstance(rejection, TokenRejected)
    assert rejection.detail == "event_name_not_allowed"


CLAIMS = ("environment", "ref")
VALUES = st.sampled_from(["production", "main", ""])
CONDITIONS = st.dictionaries(st.sampled_from(CLAIMS), st.sampled_from(["production", "main"]))
BINDINGS = st.lists(
    st.tuples(
        CONDITIONS,
        st.sampled_from([None, "team_1", "team_2"]),
        st.sampled_from([None, "prj_1", "prj_2"]),
        st.sampled_from([[], ["push"], ["schedule"]]),
    ),
    max_size=4,
)


@given(BINDINGS, st.integers(0, 3), CONDITIONS, st.dictionaries(st.sampled_from(CLAIMS), VALUES))
def test_a_condition_never_trusts_a_job_that_was_not_trusted(drawn, chosen, more, claims):
    """More conditions on one binding: no binding takes a token that it did not take before.

    A token that two bindings took, and that was rejected for it, may be left with one of them.
    """
    bindings = [
        terms(
            f"b{number}",
            conditions,
            team_id=team,
            project_id=project,
            event_names=events,
            origin="team_admin" if team else "org_admin",
        )
        for number, (conditions, team, project, events) in enumerate(drawn)
    ]
    narrowed = [
        replace(item, conditions=more | (item.conditions or {})) if number == chosen else item
        for number, item in enumerate(bindings)
    ]

    before, after = matched(bindings, **claims), matched(narrowed, **claims)

    if isinstance(before, TokenRejected) and before.detail != "binding_ambiguous":
        assert isinstance(after, TokenRejected)
    if isinstance(after, str):
        others = [item for item in bindings if item.team_id is None]
        alone = [item for item in bindings if item.id == after]
        took = candidates_of([*others, *alone]).of(GITHUB.url, SUB, "prj_1")
        (candidate,) = {item for item in took if item.id == after}
        assert candidate.allows("push")
        assert not candidate.unmet(UnverifiedClaims(claims))


def test_a_condition_can_decide_between_two_bindings_as_an_event_can():
    """Neither binding takes more than before; of two that took the token, one is left."""
    one = terms("one", None, project_id="prj_1")
    two = terms("two", None, project_id="prj_1", repository_id=None)
    both = matched([one, two], environment="staging")

    by_condition = replace(two, conditions={"environment": "production"})
    by_event = replace(two, event_names=["schedule"])

    assert isinstance(both, TokenRejected)
    assert both.detail == "binding_ambiguous"
    assert matched([one, by_condition], environment="staging") == "one"
    assert matched([one, by_event], environment="staging") == "one"
