"""Proposes bindings for rejected jobs, according to the current bindings.

Only for verified rejections. The claims of others may be forged, and a proposal would invite an
administrator to trust an attacker's claims.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from service.ci.issuers.issuers import Issuers
from service.ci.verifier.candidates import ActiveBinding, candidates_of
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.rules import VerificationContext, match_binding
from service.store.tables import RejectedSubject
from service.trust.bindings.repository import list_active_slots, list_active_with_subs
from service.trust.bindings.rules import Places, parse_binding, slot_key
from service.trust.bindings.slots import stored_slot_rule
from service.trust.explain.proposals import Proposal, proposal_for
from service.trust.rejected.subjects import is_cut

_RESOLVED_BY_A_BINDING: Final = frozenset({None, Detail.EVENT_NAME_NOT_ALLOWED})
_AUDIENCE: Final = "this service"
_NO_PLACES: Final = Places(projects=(), teams=())

_Job = tuple[str, str | None]
"""Subject and repository id."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The current state of a rejected job: trusted by a binding, with a proposal, or neither.

    `is_taken` means that another organisation holds the slot of the binding it would need.
    """

    proposal: Proposal | None = None
    trusted_by: str | None = None
    is_taken: bool = False


async def list_resolutions(
    session: AsyncSession, tenant_id: str, rows: Sequence[RejectedSubject], issuers: Issuers
) -> Mapping[str, Resolution]:
    """The current resolutions of the organisation's `rows`, by digest.

    Rows that are unverified, or were rejected for reasons other than bindings, have none.
    """
    askable = [row for row in rows if is_askable(row, issuers)]
    if not askable:
        return {}
    active = await list_active_with_subs(session, tenant_id, {str(row.sub) for row in askable})
    by_job: defaultdict[_Job, list[ActiveBinding]] = defaultdict(list)
    for binding in active:
        by_job[binding.sub_pattern, binding.repository_id].append(binding)
    resolutions = {row.digest: _resolution(row, issuers, _of_job(row, by_job)) for row in askable}
    return await _without_taken(session, tenant_id, resolutions, issuers)


def _of_job(
    row: RejectedSubject, by_job: Mapping[_Job, Sequence[ActiveBinding]]
) -> Sequence[ActiveBinding]:
    """The bindings that could match the job; one subject may have them for thousands of others."""
    repository_ids = dict.fromkeys((row.repository_id, None))
    return [item for id_ in repository_ids for item in by_job.get((str(row.sub), id_), ())]


def is_askable(row: RejectedSubject, issuers: Issuers) -> bool:
    """True if the row's claims are complete and confirmed, and a binding may be what it lacks."""
    return (
        row.is_verified
        and row.code == FailureCode.UNBOUND_OIDC_SUBJECT
        and row.issuer in issuers
        and row.sub is not None
        and not is_cut(row.sub)
    )


def _resolution(
    row: RejectedSubject, issuers: Issuers, active: Collection[ActiveBinding]
) -> Resolution:
    """The result of the rules for such a job now, with a proposal if a binding would help."""
    claims = UnverifiedClaims(claims_of(row, issuers, _AUDIENCE))
    context = VerificationContext(issuers, _AUDIENCE, candidates_of(active), row.project_id)
    try:
        _, binding = match_binding(claims, context)
    except TokenRejected as rejected:
        is_unbound = rejected.code is FailureCode.UNBOUND_OIDC_SUBJECT
        if is_unbound and rejected.detail in _RESOLVED_BY_A_BINDING:
            return Resolution(proposal=proposal_for(claims, context, active))
        return Resolution()
    return Resolution(trusted_by=binding.id)


def claims_of(row: RejectedSubject, issuers: Issuers, audience: str) -> dict[str, Any]:
    """The claims that rules 1 to 5 use, restored from a row that `is_askable`."""
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


async def _without_taken(
    session: AsyncSession, tenant_id: str, resolutions: dict[str, Resolution], issuers: Issuers
) -> Mapping[str, Resolution]:
    """`resolutions` without proposals for slots that other organisations hold."""
    slot_rule = await stored_slot_rule(session)
    slots = {
        digest: slot_key(
            # The project has no part in the slot.
            parse_binding({**resolution.proposal.body, "project_id": None}, issuers, _NO_PLACES),
            tenant_id,
            slot_rule,
        )
        for digest, resolution in resolutions.items()
        if resolution.proposal is not None
    }
    # Only whether, not by whom: other organisations' bindings must not be disclosed.
    holders = await list_active_slots(session, list(slots.values()))
    taken = {digest for digest, slot in slots.items() if holders.get(slot, tenant_id) != tenant_id}
    return resolutions | dict.fromkeys(taken, Resolution(is_taken=True))
