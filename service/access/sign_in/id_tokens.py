"""Validation of id tokens (OpenID Connect Core, 3.1.3.7)."""

import hmac
import math
from datetime import datetime, timedelta
from typing import Final

from service.access.sign_in.providers import TENANT_PLACE, IdTokenIssuer, is_tenant
from service.ci.issuers.jwks import SigningKeys
from service.ci.verifier.claims import Claims, UnverifiedToken
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.parsing import parse_token
from service.ci.verifier.signatures import SignatureFault, check_signature

LEEWAY: Final = timedelta(seconds=60)
"""How far an issuer's clock may be ahead of ours. Expiry has no leeway."""

SUBJECT_CHARS_MAX: Final = 255


class IdTokenFault(Exception):
    """Why an id token is rejected; the text is for the log."""


def read_id_token(compact: str) -> UnverifiedToken:
    """Parse the token, without verifying it. Raises IdTokenFault."""
    try:
        return parse_token(compact)
    except TokenRejected as error:
        raise IdTokenFault(f"it is no JWS: {error}") from error


def check_id_token(
    token: UnverifiedToken,
    issuer: IdTokenIssuer,
    client_id: str,
    nonce: str,
    keys: SigningKeys,
    now: datetime,
) -> tuple[str, Claims]:
    """Verify a token of `issuer` for this sign-in; its subject and claims. Raises IdTokenFault."""
    try:
        claims = check_signature(token, issuer.algorithms, keys)
    except SignatureFault as error:
        raise IdTokenFault(f"its signature: {error}") from error
    # After the signature: no claim means anything before it is verified.
    _check_issuer(claims, issuer)
    _check_audience(claims, client_id)
    _check_times(claims, now)
    given = claims.text("nonce") or ""
    # Without the nonce, a token issued for another sign-in could be injected into this one.
    if not hmac.compare_digest(given.encode(), nonce.encode()):
        raise IdTokenFault("nonce is not that of this sign-in")
    return _subject(claims), claims


def _check_issuer(claims: Claims, issuer: IdTokenIssuer) -> None:
    """`iss` must match exactly; for multi-tenant issuers, that of the tenant in `tid`."""
    expected = issuer.url
    if TENANT_PLACE in expected:
        tenant = claims.text("tid")
        if tenant is None or not is_tenant(tenant) or tenant in issuer.refused_tenants:
            raise IdTokenFault("tid is not a tenant that may sign in")
        expected = expected.replace(TENANT_PLACE, tenant)
    if claims.members.get("iss") != expected:
        raise IdTokenFault("iss is another issuer")


def _check_audience(claims: Claims, client_id: str) -> None:
    """The token must be only for this service: others in its audience could replay it here."""
    if claims.members.get("aud") not in (client_id, [client_id]):
        raise IdTokenFault("aud is not this service alone")
    if "azp" in claims.members and claims.members["azp"] != client_id:
        raise IdTokenFault("azp is another service")


def _check_times(claims: Claims, now: datetime) -> None:
    latest = (now + LEEWAY).timestamp()
    if _number(claims, "exp") <= now.timestamp():
        raise IdTokenFault("exp is past")
    if _number(claims, "iat") > latest:
        raise IdTokenFault("iat is in the future")
    if "nbf" in claims.members and _number(claims, "nbf") > latest:
        raise IdTokenFault("nbf is in the future")


def _number(claims: Claims, name: str) -> float:
    value = claims.members.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise IdTokenFault(f"{name} is missing or no number")
    return value


def _subject(claims: Claims) -> str:
    subject = claims.text("sub")
    if subject is None or len(subject) > SUBJECT_CHARS_MAX or not subject.isascii():
        raise IdTokenFault("sub is missing, too long or not ASCII")
    return subject
