"""Explanations of any claims whatever agree with the verifier, and can be sent."""

import base64

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.ci.verifier.candidates import candidates_of
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.parsing import parse_token
from service.ci.verifier.rules import VerificationContext, match_binding, rule_7_time
from service.trust.explain.evaluation import KnownBinding
from service.trust.explain.explain_api import explanation_form, parse_input
from service.trust.explain.explanation import explain_no_token, explain_token
from tests.conftest import ISSUER, START
from tests.issuers.issuer import AUDIENCE, Issuer
from tests.issuers.known import GITHUB

MAIN = "repo:acme/payments:ref:refs/heads/main"
BOUND = KnownBinding(
    "obind_1", None, None, ISSUER, MAIN, "123456789", ["push"], "org_admin", None, START
)
CONTEXT = VerificationContext({ISSUER: GITHUB}, AUDIENCE, candidates_of([BOUND]))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
GOOD = Issuer().claims()


@given(changes=st.dictionaries(st.sampled_from(sorted(GOOD)), JSON | st.just(...)))
def test_any_claims_are_explained_as_the_verifier_judges_them(changes):
    claims = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    asked = parse_input({"claims": claims})
    try:
        token = parse_token(asked.unverified_compact)
    except TokenRejected as rejection:
        said = explain_no_token(rejection, START)
    else:
        said = explain_token(token, CONTEXT, [BOUND], None, START)
    expected: tuple[FailureCode | None, Detail | None] = (None, None)
    try:
        token = parse_token(asked.unverified_compact)
        match_binding(token.unverified_claims, CONTEXT)
        rule_7_time(token.unverified_claims, START)
    except TokenRejected as rejection:
        expected = (rejection.code, rejection.detail)

    assert (said.code, said.detail) == expected
    assert said.passes == (said.code is None)
    assert msgspec.json.decode(msgspec.json.encode(explanation_form(said)))["rules"]


def test_claims_are_wrapped_without_a_signature():
    """What stands in for a token says of itself that nothing signed it."""
    header, payload, signature = parse_input({"claims": {"a": 1}}).unverified_compact.split(".")

    assert base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)) == b"{}"
    assert base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)) == b'{"a":1}'
    assert signature == ""
