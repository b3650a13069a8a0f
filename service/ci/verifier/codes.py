"""Failure codes of rejected tokens and their details."""

from enum import StrEnum
from typing import Final


class FailureCode(StrEnum):
    """Why a token was rejected, as named in logs, metrics and explanations."""

    MISSING_TOKEN = "missing_token"  # noqa: S105 - a code, not a secret
    MALFORMED_JWT = "malformed_jwt"
    UNBOUND_ISSUER = "unbound_issuer"
    BAD_AUDIENCE = "bad_audience"
    SIGNATURE_INVALID = "signature_invalid"
    EXPIRED_OR_NOT_YET_VALID = "expired_or_not_yet_valid"
    MISSING_REPOSITORY_ID = "missing_repository_id"
    UNBOUND_OIDC_SUBJECT = "unbound_oidc_subject"


class Detail(StrEnum):
    """Why no binding matched; absent in the generic case."""

    MISSING_SUB = "missing_sub"
    BINDING_AMBIGUOUS = "binding_ambiguous"
    EVENT_NAME_NOT_ALLOWED = "event_name_not_allowed"


LOG_EVENT_PREFIX: Final = "auth_failure_"
"""Prefix of a rejection's log event name; the failure code follows."""


class TokenRejected(Exception):
    """A token failed verification.

    `rule` is the number of the failed rule, None if the token could not be parsed. `reason` is for
    the log only: it may repeat contents of the token or of the issuer's answer.
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

    @property
    def is_by_condition(self) -> bool:
        """True if the event of rule 5 was allowed, and a condition of the binding was not met."""
        return self.rule == 5 and self.detail is None
