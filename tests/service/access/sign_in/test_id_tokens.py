"""An id token, claim by claim: what each check is there for."""

from datetime import timedelta
from typing import Any

import pytest

from service.access.sign_in.id_tokens import IdTokenFault, check_id_token, read_id_token
from service.access.sign_in.providers import ID_TOKEN_ALGORITHMS, IdTokenIssuer
from service.ci.issuers.jwks import SigningKeys, parse_jwks
from tests.conftest import START
from tests.issuers.issuer import Issuer, as_json, ec_key, rsa_key

CLIENT, NONCE = "client-of-countersign", "nonce-of-this-sign-in"
TENANT = "3aa0d5a1-8f2b-4c6e-9d0a-5b7c1e2f3a4b"
PERSONAL = "9188040d-6c67-4c5b-b112-36a304b66dad"
ONE = IdTokenIssuer("sign-in google", "https://accounts.google.com")
SEVERAL = IdTokenIssuer(
    "sign-in microsoft",
    "https://login.example/{tenantid}/v2.0",
    refused_tenants=frozenset({PERSONAL}),
)
AT = int(START.timestamp())


def good(**changes: Any) -> dict[str, Any]:
    """The claims of a good token with `changes`; the value `...` takes one out."""
    claims = {
        "iss": ONE.url,
        "aud": CLIENT,
        "azp": CLIENT,
        "sub": "4711",
        "iat": AT,
        "exp": AT + 3600,
        "nonce": NONCE,
    } | changes
    return {name: value for name, value in claims.items() if value is not ...}


def check(
    claims: dict[str, Any],
    issuer: IdTokenIssuer = ONE,
    signer: Issuer | None = None,
    **header: Any,
) -> str:
    """The subject of a signed token with these claims."""
    signer = signer or Issuer()
    keys: SigningKeys = parse_jwks(as_json(signer.jwks), ID_TOKEN_ALGORITHMS)
    compact = signer.sign_raw(as_json(signer.header(**header)), as_json(claims))
    subject, _ = check_id_token(read_id_token(compact), issuer, CLIENT, NONCE, keys, START)
    return subject


@pytest.mark.parametrize(
    "changes",
    [{}, {"aud": [CLIENT]}, {"azp": ...}, {"exp": AT + 1.5}, {"iat": AT + 60}, {"nbf": AT + 60}],
    ids=str,
)
def test_a_good_token_names_its_subject(changes: dict[str, Any]) -> None:
    assert check(good(**changes)) == "4711"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"iss": "https://evil.example"}, "iss"),
        ({"iss": ONE.url + "/"}, "iss"),
        ({"iss": [ONE.url]}, "iss"),
        ({"iss": ...}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": [CLIENT, "another"]}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": ...}, "aud"),
        ({"azp": "another"}, "azp"),
        ({"azp": None}, "azp"),
        ({"exp": AT}, "exp"),
        ({"exp": AT - 3600}, "exp"),
        ({"exp": str(AT + 3600)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": ...}, "exp"),
        ({"iat": AT + 62}, "iat"),
        ({"iat": ...}, "iat"),
        ({"nbf": AT + 62}, "nbf"),
        ({"nbf": None}, "nbf"),
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": [NONCE]}, "nonce"),
        ({"nonce": ...}, "nonce"),
        ({"sub": ""}, "sub"),
        ({"sub": 4711}, "sub"),
        ({"sub": "x" * 256}, "sub"),
        ({"sub": "é"}, "sub"),
        ({"sub": ...}, "sub"),
    ],
    ids=str,
)
def test_one_fault_is_enough_and_is_named(changes: dict[str, Any], fault: str) -> None:
    """Every claim must hold (OpenID Connect Core, 3.1.3.7); the log says which did not."""
    with pytest.raises(IdTokenFault, match=f"^{fault} "):
        check(good(**changes))


@pytest.mark.parametrize(
    "header",
    [{"alg": "none"}, {"alg": "HS256"}, {"alg": "RS512"}, {"kid": "another"}, {"kid": ...}],
    ids=str,
)
def test_a_header_chooses_only_among_what_is_pinned(header: dict[str, Any]) -> None:
    with pytest.raises(IdTokenFault, match=r"^its signature: "):
        check(good(), **header)


def test_a_signature_of_another_key_is_none() -> None:
    signer = Issuer()
    signer.key = rsa_key("stranger")

    with pytest.raises(IdTokenFault, match=r"^its signature: "):
        check(good(), signer=signer, kid="first")


def test_keys_of_other_kinds_may_sign() -> None:
    signer = Issuer(key=ec_key("curve"), alg="ES256")

    assert check(good(), signer=signer) == "4711"


@pytest.mark.parametrize("compact", ["", "a.b", "a.b.c.d", "a.b.c", "x" * 20_000])
def test_what_is_no_token_is_refused_unread(compact: str) -> None:
    with pytest.raises(IdTokenFault, match="no JWS"):
        read_id_token(compact)


def of_tenant(tid: object, issuer_of: str) -> dict[str, Any]:
    return good(iss=f"https://login.example/{issuer_of}/v2.0", tid=tid)


def test_where_several_tenants_sign_in_the_issuer_is_the_persons_own() -> None:
    assert check(of_tenant(TENANT, TENANT), SEVERAL) == "4711"


@pytest.mark.parametrize(
    ("tid", "issuer_of"),
    [
        (TENANT, PERSONAL),
        (TENANT.upper(), TENANT),
        ("{tenantid}", "{tenantid}"),
        ("common", "common"),
        (f"{TENANT}/x", f"{TENANT}/x"),
        ("", ""),
        (None, TENANT),
        (..., TENANT),
        ([TENANT], TENANT),
        (PERSONAL, PERSONAL),
    ],
)
def test_a_tenant_speaks_for_itself_alone(tid: object, issuer_of: str) -> None:
    """Else the administrator of any tenant could speak for yours."""
    with pytest.raises(IdTokenFault, match=r"^(tid|iss) "):
        check(of_tenant(tid, issuer_of), SEVERAL)


def test_an_expired_token_is_not_granted_the_leeway() -> None:
    """It is for clocks that run ahead, not for old tokens."""
    just_past = int((START - timedelta(seconds=1)).timestamp())

    with pytest.raises(IdTokenFault, match=r"^exp "):
        check(good(exp=just_past))
