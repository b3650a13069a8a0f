"""The endpoint that lists rejected subjects."""

from typing import Annotated

from msgspec import Meta

from analytics.model.instants import format_ms, parse_since
from service.access.roles import Capability
from service.ci.verifier.codes import Detail, FailureCode
from service.core.errors import Invalid
from service.trust.bindings.services import BindingServices
from service.trust.explain.explain_api import ProposedBinding, proposal_form
from service.trust.rejected.listing import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    RejectedFilter,
    ResolvedSubject,
    list_resolved,
)
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, Request
from service.web.parameter_types import InstantOrDate, TimestampMs

resource = Resource("rejected", "/oidc-bindings/rejected", Tag.BINDINGS, BindingServices)


class RejectedQuery(Request):
    """Which rejected subjects to list; by default all."""

    verified: (
        Annotated[
            bool,
            Meta(description="Only those whose token was valid apart from trust, or only others."),
        ]
        | None
    ) = None
    code: Annotated[FailureCode, Meta(description="Only those rejected with this code.")] | None = (
        None
    )
    since: (
        Annotated[InstantOrDate, Meta(description="Only those rejected at this instant or later.")]
        | None
    ) = None
    limit: Annotated[
        int, Meta(ge=1, le=LIMIT_MAX, description=f"How many; default {LIMIT_DEFAULT}.")
    ] = LIMIT_DEFAULT


class RejectedEntry(Answer, kw_only=True, rename="camel"):
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
    proposal: ProposedBinding | None


class RejectedList(Answer):
    """Rejected subjects, last rejected first; `count` is their number."""

    org: str
    count: int
    rejected: Annotated[list[RejectedEntry], Meta(max_length=LIMIT_MAX)]


@resource.get(
    "list_rejected_subjects",
    needs=Capability.OIDC_READ,
    query=RejectedQuery,
    returns=RejectedList,
)
async def rejected(call: Call[BindingServices], query: RejectedQuery) -> RejectedList:
    """List the recently rejected CI identities, and the bindings that would make them trusted."""
    services, matching = call.services, filter_of(query)
    subjects = await list_resolved(
        services.store, services.issuers, call.org.id, matching, services.clock()
    )
    entries = [_entry(subject) for subject in subjects]
    return RejectedList(org=call.org.slug, count=len(entries), rejected=entries)


def filter_of(query: RejectedQuery) -> RejectedFilter:
    """The filter that `query` is. Raises Invalid."""
    try:
        since = None if query.since is None else parse_since(query.since)
    except ValueError as error:
        raise Invalid(
            "since must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)", field="since"
        ) from error
    return RejectedFilter(
        is_verified=query.verified, code=query.code, since=since, limit=query.limit
    )


def _entry(subject: ResolvedSubject) -> RejectedEntry:
    row, proposal = subject.row, subject.resolution.proposal
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
