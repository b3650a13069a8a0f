"""What the owner of a refused CI token can do, for each failure code of the verifier."""

from typing import Final

from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.core.errors import CiTokenRefused

REMEDIES: Final[dict[FailureCode, str]] = {
    FailureCode.MISSING_TOKEN: "send the CI job's token in x-service-ci-oidc",
    FailureCode.MALFORMED_JWT: (
        "x-service-ci-oidc is not one token in three parts: send what the CI provider issued, once"
    ),
    FailureCode.UNBOUND_ISSUER: (
        "the operator does not accept this issuer: ask them to add it to the issuers file"
    ),
    FailureCode.BAD_AUDIENCE: (
        "the token is for another service: request one with the audience {audience} alone"
    ),
    FailureCode.SIGNATURE_INVALID: (
        "no key of the issuer verifies the signature: request a new token from the CI provider"
    ),
    FailureCode.EXPIRED_OR_NOT_YET_VALID: (
        "the token has expired, or is not valid yet: request one right before it is sent"
    ),
    FailureCode.MISSING_REPOSITORY_ID: (
        "the token names no repository, which its issuer requires: check the issuers file"
    ),
    FailureCode.UNBOUND_OIDC_SUBJECT: (
        "no binding trusts this job: create one, on the page Rejected or with"
        " `countersign bindings create`"
    ),
}

REMEDIES_OF_DETAILS: Final[dict[Detail, str]] = {
    Detail.MISSING_SUB: "the token has no subject: request a new one from the CI provider",
    Detail.BINDING_AMBIGUOUS: "several bindings trust this job: revoke all but one of them",
    Detail.EVENT_NAME_NOT_ALLOWED: (
        "the binding of this job does not allow the event that started it: replace the binding"
    ),
}


def refusal_of(rejection: TokenRejected, audience: str) -> CiTokenRefused:
    """The refusal of a token: the failure code, its detail if it has one, and what to do."""
    if rejection.detail is None:
        remedy = REMEDIES[rejection.code].format(audience=audience)
        return CiTokenRefused(f"{rejection.code}: {remedy}")
    return CiTokenRefused(
        f"{rejection.code} ({rejection.detail}): {REMEDIES_OF_DETAILS[rejection.detail]}"
    )
