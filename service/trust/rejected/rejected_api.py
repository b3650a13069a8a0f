"""An organisation's rejected subjects, and what has become of each: trusted by now, or a proposal.

Only verified rejections have a proposal. The claims of others may be forged, and a proposal would
invite an administrator to trust an attacker's claims.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.roles import Capability
from service.ci.issuers.issuers import Issuers
from service.ci.verifier.candidates import ActiveBinding, candidates_of
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.rules import VerificationContext, match_binding
from service.store.store import Store
from service.store.tables import Organisation, RejectedSubject
from service.trust.bindings.listing import parse_as_of
from service.trust.bindings.repository import list_active_slots, list_active_with_subs
from service.trust.bindings.rules import ProjectsAndTeams, parse_binding, slot_key
from service.trust.bindings.services import BindingServices
from service.trust.bindings.slots import stored_slot_rule
from service.trust.explain.explain_api import (
    ExplainInput,
    ProposedBinding,
    explain_input,
    proposal_form,
)
from service.trust.explain.explanation import Explanation
from service.trust.explain.proposals import Proposal, proposal_for
from service.trust.refusals import REJECTED_NOT_FOUND
from service.trust.rejected.rows import find_rejected, rejected_since
from service.trust.rejected.subjects import ENTRIES_PER_ORG_MAX, LISTED_FOR, is_cut
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, InstantOrDate, PageCursor, Request, TimestampMs
from service.web.paging import ListCursors, newest_page
from service.web.refusals import INVALID_CURSOR

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = ENTRIES_PER_ORG_MAX

_RESOLVED_BY_A_BINDING: Final = frozenset({None, Detail.EVENT_NAME_NOT_ALLOWED})
_AUDIENCE: Final = "this service"
_NONE_KNOWN: Final = ProjectsAndTeams(projects=(), teams=())

_SubAndRepository = tuple[str, str | None]


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
    cursor: PageCursor | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The current state of a rejected subject: trusted by a binding, with a proposal, or neither.

    `is_taken` means that another organisation holds the slot of the binding it would need.
    """

    proposal: Proposal | None = None
    trusted_by: str | None = None
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedSubject:
    """A rejected subject and its current resolution."""

    row: RejectedSubject
    resolution: Resolution


async def list_resolved(
    services: BindingServices, tenant_id: str, asked: RejectedQuery
) -> tuple[Sequence[ResolvedSubject], str | None]:
    """A page of the organisation's rejected subjects, last rejected first; and the next cursor.

    Expired rows are left out even if they are not deleted yet. Raises Invalid, INVALID_CURSOR.
    """
    since, floor = parse_as_of(asked.since, "since"), services.clock() - LISTED_FOR
    statement = rejected_since(
        tenant_id,
        floor if since is None else max(since, floor),
        is_verified=asked.verified,
        code=asked.code,
    )
    order = RejectedSubject.last_at, RejectedSubject.digest
    filters = map(str, (asked.verified, asked.code, since))
    cursors = ListCursors.of(services.settings, "rejected", tenant_id, *filters)
    async with services.store.read() as session:
        rows, next_cursor = await newest_page(
            session, statement, order, cursors, asked.limit, asked.cursor
        )
        return await _resolved(session, tenant_id, rows, services.issuers), next_cursor


async def get_resolved(
    store: Store, issuers: Issuers, tenant_id: str, digest: str, now: datetime
) -> ResolvedSubject:
    """The organisation's rejected subject with this digest. Raises REJECTED_NOT_FOUND."""
    async with store.read() as session:
        row = await find_rejected(session, tenant_id, digest, since=now - LISTED_FOR)
        if row is None:
            raise REJECTED_NOT_FOUND
        (subject,) = await _resolved(session, tenant_id, [row], issuers)
    return subject


async def explain_rejected(
    services: BindingServices, org: Organisation, row: RejectedSubject
) -> Explanation | None:
    """The explanation of the row's claims as if sent now; None if a binding would not help it."""
    if not is_resolvable(row, services.issuers):
        return None
    claims = _claims_of(row, services.issuers, services.settings.audience)
    unsigned = ExplainInput.from_claims(json.dumps(claims).encode(), row.project_id)
    return await explain_input(services, unsigned, org)


def is_resolvable(row: RejectedSubject, issuers: Issuers) -> bool:
    """True if the row's claims are complete and confirmed, and a binding may be what it lacks."""
    return (
        row.is_verified
        and row.code == FailureCode.UNBOUND_OIDC_SUBJECT
        and row.issuer in issuers
        and row.sub is not None
        and not is_cut(row.sub)
    )


async def _resolved(
    session: AsyncSession, tenant_id: str, rows: Sequence[RejectedSubject], issuers: Issuers
) -> Sequence[ResolvedSubject]:
    """The organisation's `rows`. Those that are not resolvable have an empty resolution."""
    resolvable = [row for row in rows if is_resolvable(row, issuers)]
    subs = {str(row.sub) for row in resolvable}
    active = await list_active_with_subs(session, tenant_id, subs) if subs else ()
    by_job: defaultdict[_SubAndRepository, list[ActiveBinding]] = defaultdict(list)
    for binding in active:
        by_job[binding.sub_pattern, binding.repository_id].append(binding)
    resolutions = {
        row.digest: _resolution(row, issuers, _of_job(row, by_job)) for row in resolvable
    }
    resolutions |= await _taken(session, tenant_id, resolutions, issuers)
    return [ResolvedSubject(row, resolutions.get(row.digest, Resolution())) for row in rows]


def _of_job(
    row: RejectedSubject, by_job: Mapping[_SubAndRepository, Sequence[ActiveBinding]]
) -> Sequence[ActiveBinding]:
    """The bindings that could match the job; one subject may have them for thousands of others."""
    repository_ids = dict.fromkeys((row.repository_id, None))
    return [item for id_ in repository_ids for item in by_job.get((str(row.sub), id_), ())]


def _resolution(
    row: RejectedSubject, issuers: Issuers, active: Collection[ActiveBinding]
) -> Resolution:
    """The result of the rules for such a job now, with a proposal if a binding would help."""
    claims = UnverifiedClaims(_claims_of(row, issuers, _AUDIENCE))
    context = VerificationContext(issuers, _AUDIENCE, candidates_of(active), row.project_id)
    try:
        _, binding = match_binding(claims, context)
    except TokenRejected as rejected:
        is_unbound = rejected.code is FailureCode.UNBOUND_OIDC_SUBJECT
        if is_unbound and rejected.detail in _RESOLVED_BY_A_BINDING:
            return Resolution(proposal=proposal_for(claims, context, active))
        return Resolution()
    return Resolution(trusted_by=binding.id)


def _claims_of(row: RejectedSubject, issuers: Issuers, audience: str) -> dict[str, Any]:
    """The claims that rules 1 to 5 use, restored from a row that `is_resolvable`."""
    issuer = issuers[str(row.issuer)]
    values = {
        "iss": row.issuer,
        "aud": audience,
        "sub": row.sub,
        issuer.repository_id_claim: row.repository_id,
        issuer.event_name_claim: row.event_name,
        issuer.owner_claim: row.owner,
    }
    return {name: value for name, value in values.items() if name and value is not None}


async def _taken(
    session: AsyncSession,
    tenant_id: str,
    resolutions: Mapping[str, Resolution],
    issuers: Issuers,
) -> Mapping[str, Resolution]:
    """Those of `resolutions` whose proposal is for a slot that another organisation holds."""
    proposals = {
        digest: resolution.proposal
        for digest, resolution in resolutions.items()
        if resolution.proposal is not None
    }
    if not proposals:
        return {}
    slot_rule = await stored_slot_rule(session)
    slots = {
        digest: slot_key(
            # The project has no part in the slot.
            parse_binding({**proposal.body, "project_id": None}, issuers, _NONE_KNOWN),
            tenant_id,
            slot_rule,
        )
        for digest, proposal in proposals.items()
    }
    # Only whether, not by whom: other organisations' bindings must not be disclosed.
    holders = await list_active_slots(session, list(slots.values()))
    taken = [digest for digest, slot in slots.items() if holders.get(slot, tenant_id) != tenant_id]
    return dict.fromkeys(taken, Resolution(is_taken=True))


resource = Resource("rejected", "/oidc-bindings/rejected", Tag.BINDINGS, BindingServices)


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
    """Rejected subjects, last rejected first; `count` is their number.

    `next_cursor` is null on the last page.
    """

    org: str
    count: int
    rejected: Annotated[list[RejectedEntry], Meta(max_length=LIMIT_MAX)]
    next_cursor: str | None


@resource.get(
    "list_rejected_subjects",
    needs=Capability.OIDC_READ,
    query=RejectedQuery,
    returns=RejectedList,
    refuses=[INVALID_CURSOR],
)
async def rejected(call: Call[BindingServices], query: RejectedQuery) -> RejectedList:
    """List the recently rejected CI identities, and the bindings that would make them trusted."""
    subjects, next_cursor = await list_resolved(call.services, call.org.id, query)
    entries = [_entry(subject) for subject in subjects]
    return RejectedList(
        org=call.org.slug, count=len(entries), rejected=entries, next_cursor=next_cursor
    )


def _entry(subject: ResolvedSubject) -> RejectedEntry:
    row, proposal = subject.row, subject.resolution.proposal
    return RejectedEntry.from_row(
        row,
        verified=row.is_verified,
        subject=row.sub,
        proposal=None if proposal is None else proposal_form(proposal),
    )
