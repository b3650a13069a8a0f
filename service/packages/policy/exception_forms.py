"""Requests and responses for exceptions."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from analytics.model.instants import format_ms
from service.packages.ecosystems import Ecosystem
from service.packages.policy.check import PACKAGE_MAX
from service.packages.policy.document import REASON_MAX
from service.packages.policy.exceptions import LISTED_MAX
from service.store.tables import PolicyException
from service.web.parameter_types import TimestampMs

EXCEPTION_EXAMPLE: Final = {
    "ecosystem": "pypi",
    "package": "requests==2.32.3",
    "reason": "fixes CVE-2026-1: needed today",
}
DECISION_EXAMPLE: Final = {"decision": "allow"}

Reason = Annotated[str, Meta(min_length=1, max_length=REASON_MAX)]


class ExceptionRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A release that should be let through before its cooldown ends, and why."""

    ecosystem: Ecosystem
    package: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PACKAGE_MAX,
            description="A name, or with its version `requests==2.32.3`, `left-pad@1.3.0`.",
        ),
    ]
    reason: Reason
    version: str | None = None


class ExceptionDecision(Struct, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a request."""

    decision: Literal["allow", "decline"]
    reason: Reason | None = None


class ExceptionQuery(Struct, kw_only=True):
    """Which requests."""

    state: (
        Annotated[
            Literal["open", "allowed", "declined"], Meta(description="Only those in this state.")
        ]
        | UnsetType
    ) = UNSET
    limit: (
        Annotated[
            int,
            Meta(ge=1, le=LISTED_MAX, description=f"At most so many; default {LISTED_MAX}."),
        ]
        | UnsetType
    ) = UNSET


class ExceptionForm(Struct, kw_only=True):
    """A request for an exception, and its decision."""

    id: str
    ecosystem: str
    package: str
    version: str
    reason: str
    requested_by: str
    requested_at: TimestampMs
    state: Literal["open", "allowed", "declined"]
    decided_by: str | None
    decided_at: TimestampMs | None
    decided_reason: str | None


class ExceptionList(Struct, kw_only=True):
    """Requests for exceptions, newest first."""

    org: str
    exceptions: list[ExceptionForm]


def exception_form(asked: PolicyException) -> ExceptionForm:
    """A request in the API's representation."""
    return ExceptionForm(
        id=asked.id,
        ecosystem=asked.ecosystem,
        package=asked.package,
        version=asked.version,
        reason=asked.reason,
        requested_by=asked.requested_by,
        requested_at=format_ms(asked.requested_at),
        state=asked.state,  # type: ignore[arg-type] # one of STATES
        decided_by=asked.decided_by,
        decided_at=None if asked.decided_at is None else format_ms(asked.decided_at),
        decided_reason=asked.decided_reason,
    )


def exception_list(slug: str, exceptions: Sequence[PolicyException]) -> ExceptionList:
    """Requests in the API's representation."""
    return ExceptionList(org=slug, exceptions=[exception_form(asked) for asked in exceptions])
