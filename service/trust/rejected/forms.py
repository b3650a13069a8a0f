"""The API's representation of rejected subjects."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct

from analytics.model.instants import format_ms
from service.ci.verifier.codes import Detail, FailureCode
from service.trust.explain.forms import ProposalForm, proposal_form
from service.trust.rejected.listing import LIMIT_DEFAULT, LIMIT_MAX, Entry
from service.web.parameter_types import InstantOrDate, Omittable, TimestampMs


class RejectedQuery(Struct, kw_only=True):
    """Which rejected subjects to list; by default all."""

    verified: Omittable[
        Annotated[
            bool,
            Meta(description="Only those whose token was valid apart from trust, or only others."),
        ]
    ] = UNSET
    code: Omittable[
        Annotated[FailureCode, Meta(description="Only those rejected with this code.")]
    ] = UNSET
    since: Omittable[
        Annotated[InstantOrDate, Meta(description="Only those rejected at this instant or later.")]
    ] = UNSET
    limit: Omittable[
        Annotated[int, Meta(ge=1, le=LIMIT_MAX, description=f"How many; default {LIMIT_DEFAULT}.")]
    ] = UNSET


class RejectedEntry(Struct, kw_only=True, rename="camel"):
    """A rejected CI identity.

    Its claims come from the issuer only if it is `verified`.
    """

    verified: bool
    code: FailureCode
    detail: Detail | None
    issuer: str | None
    subject: str | None
    repository_id: str | None
    event_name: str | None
    owner: str | None
    project_id: Annotated[str, Meta(description="The project of the request's API key.")] | None
    count: Annotated[int, Meta(ge=1)]
    first_at: TimestampMs
    last_at: TimestampMs
    last_request_id: str
    proposal: ProposalForm | None


class RejectedList(Struct, kw_only=True):
    """Rejected subjects, last rejected first; `count` is their number."""

    org: str
    count: int
    rejected: Annotated[list[RejectedEntry], Meta(max_length=LIMIT_MAX)]


def rejected_form(slug: str, entries: Sequence[Entry]) -> RejectedList:
    """The answer to a list."""
    return RejectedList(
        org=slug, count=len(entries), rejected=[_entry_form(entry) for entry in entries]
    )


def _entry_form(entry: Entry) -> RejectedEntry:
    row, proposal = entry.row, entry.proposal
    return RejectedEntry(
        verified=row.is_verified,
        code=FailureCode(row.code),
        detail=None if row.detail is None else Detail(row.detail),
        issuer=row.issuer,
        subject=row.sub,
        repository_id=row.repository_id,
        event_name=row.event_name,
        owner=row.owner,
        project_id=row.project_id,
        count=row.count,
        first_at=format_ms(row.first_at),
        last_at=format_ms(row.last_at),
        last_request_id=row.last_request_id,
        proposal=None if proposal is None else proposal_form(proposal),
    )
