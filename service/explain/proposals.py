"""Proposes the binding that would make a token trusted, as a request body. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from msgspec import structs

from service.bindings.rules import Draft, Places, parse_binding
from service.errors import Invalid
from service.explain.text_diff import shown
from service.issuers.issuers import Issuer
from service.store.tables import Origin
from service.verifier.candidates import ActiveBinding, BindingTerms, candidates_of
from service.verifier.claims import UnverifiedClaims
from service.verifier.codes import TokenRejected
from service.verifier.rules import VerificationContext, match_binding

_NOWHERE: Final = Places(projects=frozenset(), teams=frozenset())
_OWNER_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Proposal:
    """A request body, the bindings to revoke before sending it, and what to check first."""

    body: Mapping[str, Any]
    revoke_first: Sequence[str]
    review: str


def proposal_for(
    unverified_claims: UnverifiedClaims,
    context: VerificationContext,
    active: Collection[ActiveBinding],
) -> Proposal | None:
    """The binding with which rules 1 to 5 would pass, or None if there is none.

    `active` must include the organisation's bindings with the token's subject. The rules are
    re-run with the proposed binding before it is returned.
    """
    issuer = context.issuers.get(unverified_claims.text("iss") or "")
    if issuer is None:
        return None
    proposal = draft_of(
        issuer,
        unverified_claims.text("sub"),
        unverified_claims.identifier(issuer.repository_id_claim),
        unverified_claims.text(issuer.event_name_claim),
        unverified_claims.text(issuer.owner_claim),
        active,
    )
    if proposal is None or not _would_match(proposal, unverified_claims, context, active):
        return None
    return proposal


def draft_of(
    issuer: Issuer,
    sub: str | None,
    repository_id: str | None,
    event_name: str | None,
    owner: str | None,
    active: Collection[ActiveBinding] = (),
) -> Proposal | None:
    """A binding for such jobs, or None if no request for one would be accepted.

    The `active` bindings that hold its slot have to be revoked first; their events are included in
    the draft.
    """
    if not issuer.requires_repository_id and not (repository_id or "").isdecimal():
        repository_id = None  # such a binding matches any repository
    draft = _parsed(issuer, sub, repository_id, [event_name] if event_name else [])
    if draft is None or draft.repository_id != repository_id:
        return None  # the id would be stored in canonical form, and not match the token
    holders = [binding for binding in active if _holds_slot(binding, draft)]
    draft = _parsed(issuer, sub, repository_id, _union(holders, draft.event_names))
    if draft is None:
        return None
    body = {
        "issuer": draft.issuer,
        "sub_pattern": draft.sub_pattern,
        "repository_id": draft.repository_id,
        "event_names": list(draft.event_names),
        "origin": draft.origin.value,
    }
    return Proposal(body, [holder.id for holder in holders], _review(draft, owner, holders))


def _parsed(
    issuer: Issuer, sub: str | None, repository_id: str | None, event_names: list[str]
) -> Draft | None:
    body = {
        "issuer": issuer.url,
        "sub_pattern": sub,
        "repository_id": repository_id,
        "event_names": event_names,
        "origin": Origin.ORG_ADMIN.value,
    }
    try:
        return parse_binding(body, {issuer.url: issuer}, _NOWHERE)
    except Invalid:
        return None


def _holds_slot(binding: ActiveBinding, draft: Draft) -> bool:
    """True for an organisation-level binding of the same triple; teams have separate slots."""
    return binding.team_id is None and (
        (binding.issuer, binding.sub_pattern, binding.repository_id)
        == (draft.issuer, draft.sub_pattern, draft.repository_id)
    )


def _union(holders: Sequence[ActiveBinding], event_names: Sequence[str]) -> list[str]:
    """All listed events in order, without duplicates; empty (any) if one list is empty."""
    lists = [*(holder.event_names for holder in holders), event_names]
    return list(dict.fromkeys(chain.from_iterable(lists))) if all(lists) else []


def _would_match(
    proposal: Proposal,
    unverified_claims: UnverifiedClaims,
    context: VerificationContext,
    active: Collection[ActiveBinding],
) -> bool:
    """True if rules 1 to 5 pass once the proposal is applied."""
    body = proposal.body
    supposed = BindingTerms(
        id="obind_supposed",
        project_id=None,
        team_id=None,
        issuer=body["issuer"],
        sub_pattern=body["sub_pattern"],
        repository_id=body["repository_id"],
        event_names=body["event_names"],
        origin=body["origin"],
    )
    left = [binding for binding in active if binding.id not in proposal.revoke_first]
    candidates = candidates_of([*left, supposed])
    try:
        match_binding(unverified_claims, structs.replace(context, candidates=candidates))
    except TokenRejected:
        return False
    return True


def _review(draft: Draft, owner: str | None, holders: Sequence[ActiveBinding]) -> str:
    """What a person has to check before creating the binding."""
    who = shown(owner)[:_OWNER_CHARS_MAX] if owner else "an owner the token does not name"
    repository = f"repository {draft.repository_id}" if draft.repository_id else "any repository"
    events = f"started by {', '.join(draft.event_names)}" if draft.event_names else "of any event"
    lines = [
        f"Trusts jobs of {who} ({repository}), {events}:"
        " check that both are yours before creating it."
    ]
    if holders:
        ids = ", ".join(holder.id for holder in holders)
        lines.append(f"It takes the place of {ids}, to be revoked first.")
    if any(holder.project_id for holder in holders):
        lines.append("That one was limited to a project; this one is not.")
    return " ".join(lines)
