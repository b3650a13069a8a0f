"""Whatever is done to a good token: it gets a documented code, or it was good all along."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import RSAKey

from service.ci.issuers.issuers import load_issuers
from service.ci.issuers.jwks import parse_jwks
from service.ci.verifier.candidates import BindingTerms, candidates_of
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.parsing import parse_token, read_header
from service.ci.verifier.rules import (
    VerificationContext,
    match_binding,
    rule_6_signature,
    rule_7_time,
)
from service.core.settings import Settings
from tests.budgets import budget
from tests.conftest import START
from tests.issuers.issuer import AUDIENCE, Issuer, as_json, rsa_key, segment

JOB = Issuer()
GOOD = JOB.sign()
OTHER = Issuer(key=rsa_key("attacker")).sign(jti="another")
PUBLIC = RSAKey.import_key(JOB.jwks["keys"][0])
KEYS = parse_jwks(as_json(JOB.jwks), ["RS256"])
NOW_S = START.timestamp()
BOUND = BindingTerms(
    id="obind_1",
    project_id=None,
    team_id=None,
    issuer=JOB.url,
    sub_pattern=JOB.claims()["sub"],
    repository_id=JOB.claims()["repository_id"],
    event_names=["push"],
    origin="org_admin",
    conditions=None,
)
CONTEXT = VerificationContext(
    load_issuers(Settings().issuers_file), AUDIENCE, candidates_of([BOUND])
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from([JOB.url, AUDIENCE, BOUND.sub_pattern, "123456789", "push", "RS256", "first"])
    | st.integers(-70, 70).map(lambda seconds: int(NOW_S) + seconds)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
claim_names = st.sampled_from(sorted(JOB.claims())) | st.text(max_size=8)
HEADER_NAMES = ["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "x5u", "x5c", "cty", "enc", "p2c"]
header_names = st.sampled_from(HEADER_NAMES) | st.text(max_size=8)
removed = st.just(...)


def judge(token: str) -> TokenRejected | None:
    try:
        unverified = parse_token(read_header([token]))
        issuer, _ = match_binding(unverified.unverified_claims, CONTEXT)
        rule_7_time(rule_6_signature(unverified, issuer, KEYS), START)
    except TokenRejected as rejection:
        return rejection
    return None


def assert_sound(token: str) -> TokenRejected | None:
    """Judge `token`; what is accepted must be what the library and a plain reading accept."""
    rejection = judge(token)
    if rejection is not None:
        assert rejection.code in set(FailureCode)
        assert rejection.detail in {None, *Detail}
        return rejection
    claims = jwt.decode(token, PUBLIC, algorithms=["RS256"]).claims
    assert claims["iss"] == JOB.url
    assert claims["aud"] in (AUDIENCE, [AUDIENCE])
    assert claims["sub"] == BOUND.sub_pattern
    assert str(claims["repository_id"]) == BOUND.repository_id
    assert claims["event_name"] in BOUND.event_names
    assert claims["exp"] > NOW_S
    return None


def test_the_good_token_is_good():
    assert assert_sound(GOOD) is None


@settings(max_examples=budget(60, 300))
@given(
    at=st.integers(0, len(GOOD)),
    gone=st.integers(0, 3),
    put=st.text(max_size=3) | st.text("ABab01-_.=+/ ", max_size=3),
)
def test_mutated_characters(at: int, gone: int, put: str):
    token = GOOD[:at] + put + GOOD[at + gone :]
    if token.strip(" \t") != GOOD:
        assert assert_sound(token) is not None


@settings(max_examples=budget(60, 300))
@given(st.lists(st.sampled_from([*GOOD.split("."), *OTHER.split("."), "", "e30"]), max_size=5))
def test_mutated_parts(parts: list[str]):
    token = ".".join(parts)
    if token != GOOD:
        assert assert_sound(token) is not None


@settings(max_examples=budget(60, 300))
@given(st.dictionaries(claim_names, values | removed, min_size=1, max_size=4))
@example({"aud": [AUDIENCE]})
@example({"repository_id": 123456789})
def test_mutated_claims(changes: dict[str, Any]):
    assert_sound(JOB.sign(**changes))


@settings(max_examples=budget(60, 300))
@given(st.dictionaries(header_names, values | removed, min_size=1, max_size=3))
@example({"typ": "at+jwt"})
@example({"x5t": "AAAA"})
def test_mutated_headers(changes: dict[str, Any]):
    """Under a signature of the issuer's key by its algorithm, which the header may deny."""
    assert_sound(JOB.sign(header=changes))


@settings(max_examples=budget(60, 300))
@given(
    header=st.binary(max_size=60), payload=st.binary(max_size=60), signature=st.binary(max_size=8)
)
def test_bytes_in_place_of_a_token(header: bytes, payload: bytes, signature: bytes):
    assert assert_sound(f"{segment(header)}.{segment(payload)}.{segment(signature)}") is not None


@settings(max_examples=budget(60, 300))
@given(values)
def test_any_json_as_claims(value: object):
    assert assert_sound(JOB.sign_raw(as_json(JOB.header()), as_json(value))) is not None


@pytest.mark.parametrize("which", ["header", "payload"])
@settings(max_examples=budget(60, 300))
@given(st.data())
def test_mutated_json(which: str, data: st.DataObject):
    """Under a good signature over the mutated JSON."""
    raw = {"header": json.dumps(JOB.header()), "payload": json.dumps(JOB.claims())}
    at = data.draw(st.integers(0, len(raw[which])))
    gone = data.draw(st.integers(0, 2))
    put = data.draw(st.text('{}[]":,\\u0 1eE+-.tfn\ufeff\x00é', max_size=3))
    raw[which] = raw[which][:at] + put + raw[which][at + gone :]
    assert_sound(JOB.sign_raw(raw["header"].encode(), raw["payload"].encode()))
