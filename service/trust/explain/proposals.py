"""Proposes the binding that would make a token trusted, as a request body. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from msgspec import structs

from service.ci.verifier.candidates import ActiveBinding, BindingTerms, candidates_of
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.rules import VerificationContext, match_binding
from service.core.errors import Invalid
from service.store.tables import Origin
from service.trust.bindings.rules import Draft, ProjectsAndTeams, parse_binding
from service.trust.explain.evaluation import TokenJob
from service.trust.explain.text_diff import display_text

_OWNER_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Proposal:
    """A request body, the binding that it replaces, and what to check before sending it.

    With `replaces` the body is for the replace endpoint of that binding, otherwise for a create.
    `beside` is the body of a create that leaves that binding as it is; None if there is no
    binding to replace, or if both would have the same slot.
    """

    body: Mapping[str, Any]
    replaces: str | None
    beside: Mapping[str, Any] | None
    review: str


def proposal_for(
    unverified_claims: UnverifiedClaims,
    context: VerificationContext,
    active: Collection[ActiveBinding],
    predecessor: ActiveBinding | None = None,
) -> Proposal | None:
    """The binding with which rules 1 to 5 would pass, or None if there is none.

    What is kept of rejected tokens has no claims for conditions: those are supposed to be met. A
    job whose earlier binding has conditions gets none without them.

    `active` must include the organisation's bindings with the token's subject. `predecessor` is
    the job's binding under an earlier name, if there is one. The rules are re-run with the
    proposed binding before it is returned.
    """
    issuer = context.issuers.get(unverified_claims.text("iss") or "")
    job = TokenJob.of(unverified_claims, issuer, context.project_id)
    if job is None:
        return None
    is_narrowed = predecessor is not None and predecessor.conditions
    for earlier in (predecessor,) if is_narrowed else (predecessor, None):
        proposal = draft_of(job, active, earlier)
        if (
            proposal is not None
            and not any(_is_as(binding, proposal) for binding in active)
            and _would_match(proposal, unverified_claims, context, active)
        ):
            return proposal
    return None


def draft_of(
    job: TokenJob,
    active: Collection[ActiveBinding] = (),
    predecessor: ActiveBinding | None = None,
) -> Proposal | None:
    """A binding for such jobs, or None if no request for one would be accepted.

    It replaces the one of `active` that holds its slot, otherwise `predecessor`, and keeps the
    events and conditions of that one. A binding that replaces none is limited to the job's
    project.
    """
    if not job.issuer.requires_repository_id and not (job.repository_id or "").isdecimal():
        job = replace(job, repository_id=None)  # such a binding matches any repository
    own = _parsed(job, [job.event_name] if job.event_name else [], job.project_id)
    if own is None or own.repository_id != job.repository_id:
        return None  # the id would be stored in canonical form, and not match the token
    holder = next((binding for binding in active if _holds_slot(binding, own)), None)
    replaced = holder or predecessor
    if replaced is None:
        return Proposal(_body(own), None, None, _review(own, job.owner))
    events = _union(replaced, own.event_names)
    # Not the job's own project instead of another one: jobs that were trusted would no longer be.
    project_id = job.project_id if job.project_id == replaced.project_id else None
    draft = _parsed(job, events, project_id, replaced.conditions)
    own = _parsed(job, own.event_names, own.project_id, replaced.conditions)
    if draft is None or own is None:
        return None
    return Proposal(
        body=_body(draft),
        replaces=replaced.id,
        beside=None if holder else _body(own),
        review=" ".join(
            [_review(draft, job.owner), *_about_replaced(replaced, draft, has_slot=holder is None)]
        ),
    )


def _parsed(
    job: TokenJob,
    event_names: Sequence[str],
    project_id: str | None,
    conditions: Mapping[str, str] | None = None,
) -> Draft | None:
    body = {
        "issuer": job.issuer.url,
        "sub_pattern": job.sub,
        "repository_id": job.repository_id,
        "event_names": list(event_names),
        "origin": Origin.ORG_ADMIN.value,
        "project_id": project_id,
        "conditions": conditions,
    }
    known = ProjectsAndTeams(projects={project_id} if project_id else (), teams=())
    try:
        return parse_binding(body, {job.issuer.url: job.issuer}, known)
    except Invalid:
        return None


def _body(draft: Draft) -> dict[str, Any]:
    """The request body; it has no team, as proposals are organisation-level."""
    return {name: value for name, value in draft.body.items() if name != "team_id"}


def _holds_slot(binding: ActiveBinding, draft: Draft) -> bool:
    """True for an organisation-level binding of the same triple; teams have separate slots."""
    return binding.team_id is None and (
        (binding.issuer, binding.sub_pattern, binding.repository_id)
        == (draft.issuer, draft.sub_pattern, draft.repository_id)
    )


def _is_as(binding: ActiveBinding, proposal: Proposal) -> bool:
    """True if `proposal` replaces `binding` by one of the same terms."""
    body = proposal.body
    return (
        binding.id == proposal.replaces
        and binding.sub_pattern == body["sub_pattern"]
        and binding.repository_id == body["repository_id"]
        and set(binding.event_names) == set(body["event_names"])
        and binding.project_id == body["project_id"]
        and (binding.conditions or {}) == body.get("conditions", {})
    )


def _union(replaced: ActiveBinding, event_names: Sequence[str]) -> list[str]:
    """All listed events in order, without duplicates; empty (any) if one list is empty."""
    lists = [replaced.event_names, event_names]
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
        project_id=body["project_id"],
        team_id=None,
        issuer=body["issuer"],
        sub_pattern=body["sub_pattern"],
        repository_id=body["repository_id"],
        event_names=body["event_names"],
        origin=body["origin"],
        conditions={
            claim: value
            for claim, value in (body.get("conditions") or {}).items()
            if claim in unverified_claims.members
        },
    )
    left = [binding for binding in active if binding.id != proposal.replaces]
    candidates = candidates_of([*left, supposed])
    try:
        match_binding(unverified_claims, structs.replace(context, candidates=candidates))
    except TokenRejected:
        return False
    return True


def _review(draft: Draft, owner: str | None) -> str:
    """What a person has to check before creating the binding."""
    who = display_text(owner)[:_OWNER_CHARS_MAX] if owner else "an owner the token does not name"
    repository = f"repository {draft.repository_id}" if draft.repository_id else "any repository"
    events = f"started by {', '.join(draft.event_names)}" if draft.event_names else "of any event"
    wanted = "".join(f", with {claim} {value}" for claim, value in draft.conditions.items())
    return (
        f"Trusts jobs of {who} ({repository}), {events}{display_text(wanted)}:"
        " check that both are yours before creating it."
    )


def _about_replaced(replaced: ActiveBinding, draft: Draft, *, has_slot: bool) -> list[str]:
    """What becomes of the replaced binding; `has_slot` means that it could also stay."""
    lines = [f"It replaces {replaced.id} in one step and keeps its events."]
    if has_slot:
        lines.append(
            "Jobs with the subject and repository id of that one are no longer trusted then:"
            " add the new one beside it if there still are any."
        )
    if replaced.project_id != draft.project_id:
        lines.append("That one was limited to a project; this one is not.")
    if replaced.origin == Origin.PLATFORM_ADMIN:
        lines.append("That one was created by the operator of this service.")
    return lines
