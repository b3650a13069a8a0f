"""The seven verification rules, in order. The first failed rule determines the failure code.

Rules 1 to 5 compare the unverified claims with the configuration and the bindings only, so that an
untrusted token causes no key lookup and no request to its issuer. Rule 6 is the only way from
unverified claims to claims. Rule 7 checks their times. All rules are pure functions.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeGuard

from msgspec import Struct

from service.ci.issuers.issuers import Issuer, Issuers
from service.ci.issuers.jwks import SigningKeys
from service.ci.verifier.candidates import Candidate, Candidates
from service.ci.verifier.claims import Claims, UnverifiedClaims, UnverifiedToken
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.signatures import SignatureFault, check_signature

LEEWAY_S: Final = 60
"""How far an issuer's clock may be ahead of ours. Expiry has no leeway."""


class VerificationContext(Struct, frozen=True):
    """The inputs of the rules apart from keys and time.

    `candidates` are the bindings of the organisation that the request is for, `project_id` the
    project of its API key, None for other credentials.
    """

    issuers: Issuers
    audience: str
    candidates: Candidates
    project_id: str | None = None


def match_binding(
    unverified_claims: UnverifiedClaims, context: VerificationContext
) -> tuple[Issuer, Candidate]:
    """Rules 1 to 5 and conditions: the issuer and binding of the claims. Raises TokenRejected."""
    issuer = rule_1_issuer(unverified_claims, context.issuers)
    rule_2_audience(unverified_claims, context.audience)
    same_sub = rule_3_subject(unverified_claims, issuer, context)
    same_repository = rule_4_repository(unverified_claims, issuer, same_sub)
    allowing = rule_5_event(unverified_claims, issuer, same_repository)
    return issuer, only_binding(unverified_claims, allowing)


def rule_1_issuer(unverified_claims: UnverifiedClaims, issuers: Issuers) -> Issuer:
    """The issuer is on the allowlist, compared character by character."""
    url = unverified_claims.text("iss")
    if url is None or url not in issuers:
        raise TokenRejected(FailureCode.UNBOUND_ISSUER, 1)
    return issuers[url]


def rule_2_audience(unverified_claims: UnverifiedClaims, audience: str) -> None:
    """The token's only audience is this service."""
    if unverified_claims.members.get("aud") not in (audience, [audience]):
        raise TokenRejected(FailureCode.BAD_AUDIENCE, 2)


def rule_3_subject(
    unverified_claims: UnverifiedClaims, issuer: Issuer, context: VerificationContext
) -> Sequence[Candidate]:
    """The active bindings with exactly this subject; at least one."""
    sub = unverified_claims.text("sub")
    if sub is None:
        raise TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT, 3, detail=Detail.MISSING_SUB)
    candidates = context.candidates.of(issuer.url, sub, context.project_id)
    if not candidates:
        raise TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT, 3)
    return candidates


def rule_4_repository(
    unverified_claims: UnverifiedClaims, issuer: Issuer, candidates: Sequence[Candidate]
) -> Sequence[Candidate]:
    """The candidates bound to the token's repository, by id and not by name; at least one.

    Bindings without a repository id, which only some issuers allow, match any repository.
    """
    repository_id = unverified_claims.identifier(issuer.repository_id_claim)
    if repository_id is None and issuer.requires_repository_id:
        raise TokenRejected(FailureCode.MISSING_REPOSITORY_ID, 4)
    same = [
        candidate
        for candidate in candidates
        if candidate.repository_id is None or candidate.repository_id == repository_id
    ]
    if not same:
        raise TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT, 4)
    return same


def rule_5_event(
    unverified_claims: UnverifiedClaims, issuer: Issuer, candidates: Sequence[Candidate]
) -> Sequence[Candidate]:
    """The candidates that allow the event that started the job; at least one."""
    event_name = unverified_claims.text(issuer.event_name_claim)
    allowing = [candidate for candidate in candidates if candidate.allows(event_name)]
    if not allowing:
        raise TokenRejected(
            FailureCode.UNBOUND_OIDC_SUBJECT, 5, detail=Detail.EVENT_NAME_NOT_ALLOWED
        )
    return allowing


def only_binding(unverified_claims: UnverifiedClaims, candidates: Sequence[Candidate]) -> Candidate:
    """The one candidate of those of rule 5 whose conditions the token meets.

    Bindings of a team or project take precedence over the organisation's, and a team binding over
    its envelope. Exactly one must remain. A rejection for conditions has no detail.
    """
    meeting = [item for item in candidates if not item.unmet(unverified_claims)]
    if not meeting:
        raise TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT, 5)
    first = most_specific(meeting)
    if len(first) > 1:
        raise TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT, 5, detail=Detail.BINDING_AMBIGUOUS)
    return first[0]


def most_specific(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The `candidates` that take precedence; rule 5 rejects the token if several remain."""
    stood_for = {candidate.stands_for for candidate in candidates}
    left = [candidate for candidate in candidates if candidate.id not in stood_for]
    return [candidate for candidate in left if candidate.is_specific] or left


def rule_6_signature(token: UnverifiedToken, issuer: Issuer, keys: SigningKeys) -> Claims:
    """The issuer signed the token, with an algorithm pinned for it."""
    try:
        return check_signature(token, issuer.algorithms, keys)
    except SignatureFault as fault:
        raise TokenRejected(FailureCode.SIGNATURE_INVALID, 6, reason=str(fault)) from fault


def rule_7_time(claims: UnverifiedClaims, now: datetime) -> None:
    """The token has not expired, and `iat` and `nbf` are not in the future (beyond LEEWAY_S).

    An explanation also applies this rule to claims without a verified signature.
    """
    seconds = now.timestamp()
    expires_at_s = claims.members.get("exp")
    # RFC 7519, 4.1.4: not accepted on or after this time.
    if not _is_number(expires_at_s) or expires_at_s <= seconds:
        raise TokenRejected(FailureCode.EXPIRED_OR_NOT_YET_VALID, 7)
    for name in ("iat", "nbf"):
        starts_at_s = claims.members.get(name, seconds)
        if not _is_number(starts_at_s) or starts_at_s > seconds + LEEWAY_S:
            raise TokenRejected(FailureCode.EXPIRED_OR_NOT_YET_VALID, 7)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
