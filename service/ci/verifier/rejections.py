"""Records of rejected tokens: never the token itself, and only excerpts of its text."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import structlog

from service.ci.issuers.issuers import Issuer
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import LOG_EVENT_PREFIX, Detail, FailureCode, TokenRejected

LOGGED_CHARS_MAX: Final = 256

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRejection:
    """A rejected token. `project_id` is the project of the API key sent with it.

    `owner` is the repository owner according to the token. It is shown only, and not used to tell
    rejections apart.
    """

    tenant_id: str
    is_verified: bool
    code: FailureCode
    detail: Detail | None
    issuer: str | None
    sub: str | None
    repository_id: str | None
    event_name: str | None
    owner: str | None
    project_id: str | None
    request_id: str
    at: datetime

    @classmethod
    def of(
        cls,
        claims: UnverifiedClaims,
        issuer: Issuer | None,
        rejection: TokenRejected,
        **circumstances: Any,  # noqa: ANN401 - the fields that do not come from the token
    ) -> Self:
        """The rejection of a token with `claims`; `issuer` is the one they name, if accepted."""
        return cls(
            code=rejection.code,
            detail=rejection.detail,
            issuer=claims.text("iss"),
            sub=claims.text("sub"),
            repository_id=claims.identifier(issuer.repository_id_claim) if issuer else None,
            event_name=claims.text(issuer.event_name_claim) if issuer else None,
            owner=claims.text(issuer.owner_claim) if issuer else None,
            **circumstances,
        )


def log_rejection(
    rejection: TokenRejected, values: Sequence[str], claims: UnverifiedClaims, tenant_id: str
) -> None:
    """Write the one log line about the rejected token in the header `values`."""
    _log.warning(
        f"{LOG_EVENT_PREFIX}{rejection.code}",
        issuer=_cut(claims.text("iss")),
        token_sha256=hashlib.sha256(",".join(values).encode()).hexdigest(),
        organisation=tenant_id,
        detail=rejection.detail,
        reason=_cut(rejection.reason),
    )


def _cut(text: str | None) -> str | None:
    return text if text is None else text[:LOGGED_CHARS_MAX]
