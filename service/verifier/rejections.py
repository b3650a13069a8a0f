"""A token that was turned away, as it is put on record: never the token, and of its text a bit."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import structlog

from service.issuers.issuers import Issuer
from service.verifier.claims import UnverifiedClaims
from service.verifier.codes import LOG_EVENT_PREFIX, Detail, FailureCode, TokenRejected

LOGGED_CHARS_MAX: Final = 256

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One token that was turned away. `project_id` is that of the API key it came with.

    `owner` is who the token says owns the repository: for people to look at, not to tell two
    rejections apart by.
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
        said: UnverifiedClaims,
        issuer: Issuer | None,
        rejection: TokenRejected,
        **circumstances: Any,  # noqa: ANN401 - the fields that no token has a say in
    ) -> Self:
        """The rejection of a token that says `said`; `issuer` is the one it names, if accepted."""
        return cls(
            code=rejection.code,
            detail=rejection.detail,
            issuer=said.text("iss"),
            sub=said.text("sub"),
            repository_id=said.identifier(issuer.repository_id_claim) if issuer else None,
            event_name=said.text(issuer.event_name_claim) if issuer else None,
            owner=said.text(issuer.owner_claim) if issuer else None,
            **circumstances,
        )


def log_rejection(
    rejection: TokenRejected, values: Sequence[str], said: UnverifiedClaims, tenant_id: str
) -> None:
    """Write the one line about a token, in the header `values`, that was turned away."""
    _log.warning(
        f"{LOG_EVENT_PREFIX}{rejection.code}",
        issuer=_cut(said.text("iss")),
        token_sha256=hashlib.sha256(",".join(values).encode()).hexdigest(),
        organisation=tenant_id,
        detail=rejection.detail,
        reason=_cut(rejection.reason),
    )


def _cut(text: str | None) -> str | None:
    return text if text is None else text[:LOGGED_CHARS_MAX]
