"""Why tokens are rejected, in plain words, and what to do about it.

A short form of the table in docs/ci-tokens.md.
"""

from dataclasses import dataclass
from typing import Final

from service.ci.verifier.codes import Detail, FailureCode


@dataclass(frozen=True, slots=True)
class Failure:
    """What a code means, the next step, and whether a new binding may fix it."""

    meaning: str
    advice: str
    is_fixed_by_a_binding: bool = False


_UNBOUND: Final = FailureCode.UNBOUND_OIDC_SUBJECT
FAILURES: Final[dict[tuple[FailureCode, Detail | None], Failure]] = {
    (FailureCode.MISSING_TOKEN, None): Failure(
        "The header was empty.",
        "Check the step that requests the token: on GitHub it needs “id-token: write”, and pull"
        " requests from forks get none.",
    ),
    (FailureCode.MALFORMED_JWT, None): Failure(
        "The header does not hold a token.",
        "Send the bare token, once: no “Bearer” before it, no quotes or line breaks around it, and"
        " not the JSON response that contained it.",
    ),
    (FailureCode.UNBOUND_ISSUER, None): Failure(
        "Its issuer is not accepted.",
        "Compare it with the accepted issuers, character by character. The operator of this"
        " service decides which are accepted.",
    ),
    (FailureCode.BAD_AUDIENCE, None): Failure(
        "Its audience is not this service, or not this service alone.",
        "Request a token from the CI provider with this service’s audience, and no other.",
    ),
    (_UNBOUND, Detail.MISSING_SUB): Failure(
        "It has no subject.",
        "Tokens of CI providers have one: check where the token comes from.",
    ),
    (_UNBOUND, None): Failure(
        "No active binding has this subject and repository.",
        "If the job is yours, explain one of its tokens: this shows the missing binding, or the"
        " character that differs.",
        is_fixed_by_a_binding=True,
    ),
    (FailureCode.MISSING_REPOSITORY_ID, None): Failure(
        "A binding has the subject, but the token has no repository id.",
        "Tokens of GitHub and GitLab have one: check where the token comes from.",
    ),
    (_UNBOUND, Detail.EVENT_NAME_NOT_ALLOWED): Failure(
        "Its binding does not allow the event that started the job.",
        "Decide whether to trust this event. If so, replace the binding with one that lists it.",
        is_fixed_by_a_binding=True,
    ),
    (_UNBOUND, Detail.BINDING_AMBIGUOUS): Failure(
        "Several bindings match, and none takes precedence.",
        "Revoke all but one of them, or limit each to a different project.",
    ),
    (FailureCode.SIGNATURE_INVALID, None): Failure(
        "Its signature could not be verified.",
        "Either the token was altered, or the issuer’s keys could not be fetched. The service’s log"
        " says which, under the request id.",
    ),
    (FailureCode.EXPIRED_OR_NOT_YET_VALID, None): Failure(
        "It had expired, or was not valid yet.",
        "Request the token right before it is sent, or correct the clocks.",
    ),
}


def failure_of(code: str, detail: str | None) -> Failure:
    """The failure for a code and its detail."""
    return FAILURES[FailureCode(code), None if detail is None else Detail(detail)]
