"""Why a token is rejected: the failure codes, their details, and the rule each belongs to."""

from enum import StrEnum
from typing import Final


class FailureCode(StrEnum):
    """What is wrong with a token, as logs, counters and explanations name it."""

    MISSING_TOKEN = "missing_token"  # noqa: S105 - a code, not a secret
    MALFORMED_JWT = "malformed_jwt"
    UNBOUND_ISSUER = "unbound_issuer"
    BAD_AUDIENCE = "bad_audience"
    SIGNATURE_INVALID = "signature_invalid"
    EXPIRED_OR_NOT_YET_VALID = "expired_or_not_yet_valid"
    MISSING_REPOSITORY_ID = "missing_repository_id"
    UNBOUND_OIDC_SUBJECT = "unbound_oidc_subject"


class Detail(StrEnum):
    """Why exactly no binding matched; the generic case has none."""

    MISSING_SUB = "missing_sub"
    BINDING_AMBIGUOUS = "binding_ambiguous"
    EVENT_NAME_NOT_ALLOWED = "event_name_not_allowed"


LOG_EVENT_PREFIX: Final = "auth_failure_"
"""What the name of a rejection's log event begins with; its code follows."""


class TokenRejected(Exception):
    """A token that proves nothing.

    `rule` is the number of the rule it broke, None for what is no token at all. `reason` says more
    to the operator: it may repeat what the token or the issuer's server said, and is for the log.
    """

    def __init__(
        self,
        code: FailureCode,
        rule: int | None = None,
        *,
        detail: Detail | None = None,
        reason: str | None = None,
    ) -> None:
        self.code = code
        self.rule = rule
        self.detail = detail
        self.reason = reason
        super().__init__(code if detail is None else f"{code}/{detail}")
