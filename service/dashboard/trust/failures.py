"""Why tokens are turned away, in plain words, and what to do about it.

The table in docs/ci-tokens.md says more; this is what fits beside a token.
"""

from dataclasses import dataclass
from typing import Final

from service.verifier.codes import Detail, FailureCode


@dataclass(frozen=True, slots=True)
class Failure:
    """What a code means, and the next step; and whether that may be a binding."""

    meaning: str
    advice: str
    is_mended_by_a_binding: bool = False


_UNBOUND: Final = FailureCode.UNBOUND_OIDC_SUBJECT
FAILURES: Final[dict[tuple[FailureCode, Detail | None], Failure]] = {
    (FailureCode.MISSING_TOKEN, None): Failure(
        "The header was empty.",
        "Look at the step that asks for the token: on GitHub it needs “id-token: write”, and pull"
        " requests from forks get none.",
    ),
    (FailureCode.MALFORMED_JWT, None): Failure(
        "What was sent is no token.",
        "Send the bare token, once: no “Bearer” before it, no quotes or line breaks around it, and"
        " not the JSON that it came in.",
    ),
    (FailureCode.UNBOUND_ISSUER, None): Failure(
        "Its issuer is not accepted here.",
        "Compare it with the accepted ones, character for character. Whoever runs this service"
        " decides which those are.",
    ),
    (FailureCode.BAD_AUDIENCE, None): Failure(
        "It was not made for this service, or not for it alone.",
        "Ask the CI provider for a token with this service’s audience, and with that one only.",
    ),
    (_UNBOUND, Detail.MISSING_SUB): Failure(
        "It names no subject.",
        "No CI provider does that by itself: see who made the token.",
    ),
    (_UNBOUND, None): Failure(
        "No active binding has this subject and repository.",
        "If the job is yours, explain a token of it: that shows the binding that it lacks, or the"
        " character that differs.",
        is_mended_by_a_binding=True,
    ),
    (FailureCode.MISSING_REPOSITORY_ID, None): Failure(
        "A binding has the subject, but the token has no repository id.",
        "Tokens of GitHub and GitLab have one: see who made the token.",
    ),
    (_UNBOUND, Detail.EVENT_NAME_NOT_ALLOWED): Failure(
        "Its binding does not list what started the job.",
        "Decide whether this event is to be trusted. If so, revoke the binding and create it anew"
        " with the event added.",
        is_mended_by_a_binding=True,
    ),
    (_UNBOUND, Detail.BINDING_AMBIGUOUS): Failure(
        "Several bindings match alike, and none goes before the others.",
        "Revoke all of them but one, or limit each of them to a project of its own.",
    ),
    (FailureCode.SIGNATURE_INVALID, None): Failure(
        "Its signature could not be verified.",
        "A changed token is the sender’s fault; keys that cannot be fetched are the network’s. The"
        " service’s log says which, under the request id.",
    ),
    (FailureCode.EXPIRED_OR_NOT_YET_VALID, None): Failure(
        "It had expired, or was not valid yet.",
        "Ask for the token right before it is sent, or set the clocks right.",
    ),
}


def failure_of(code: str, detail: str | None) -> Failure:
    """The words for a code and its detail, as stored or as explained."""
    return FAILURES[FailureCode(code), None if detail is None else Detail(detail)]
