"""Explain a pasted token or claims: each rule in words, and the missing binding.

What is pasted is not kept: it appears in no page, log, row or URL.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from service.access.callers import Caller
from service.access.roles import Capability
from service.ci.verifier.codes import Detail
from service.core.errors import Invalid
from service.pages.form_auth import Form
from service.pages.navigation import may
from service.pages.trust.binding_view import ShownBinding, show_bindings
from service.pages.trust.create_page import Choices, Typed, load_choices, typed_of
from service.pages.trust.failures import Failure, failure_of
from service.pages.trust.permissions import may_create, may_revoke
from service.pages.trust.rejected_page import ShownRejection
from service.store.organisations import list_names
from service.store.tables import Organisation, Project
from service.trust.bindings.repository import find_binding
from service.trust.bindings.services import BindingServices
from service.trust.explain.evaluation import Status
from service.trust.explain.explain_api import ExplainInput, explain_input
from service.trust.explain.explanation import ExplainedRule, Explanation
from service.trust.explain.nearest import NearKind, NearMatch
from service.trust.explain.proposals import Proposal
from service.trust.explain.text_diff import Difference
from service.trust.refusals import NEITHER_TOKEN_NOR_CLAIMS
from service.trust.rejected.listing import explain_rejected


@dataclass(frozen=True, slots=True)
class ProposalCard:
    """The template's data. `given` fills the form of the proposal, `beside` that of the other one.

    `replaced` is the binding that the proposal replaces. `project` is the name of the project that
    the new binding is limited to. `choices` are None for callers that cannot create bindings.
    """

    proposal: Proposal
    given: Typed
    beside: Typed | None
    replaced: ShownBinding | None
    project: str | None
    choices: Choices | None
    may_replace: bool


async def load_proposal_card(
    services: BindingServices, caller: Caller, org: Organisation, proposal: Proposal
) -> ProposalCard:
    """The card of `proposal` for `caller`."""
    choices = await load_choices(services, caller, org)
    is_writer = may(caller, Capability.OIDC_WRITE, org)
    project_id = proposal.body["project_id"]
    return ProposalCard(
        proposal=proposal,
        given=typed_of(proposal.body),
        beside=None if proposal.beside is None else typed_of(proposal.beside),
        replaced=await _replaced(services, org, proposal),
        project=dict(choices.projects).get(project_id, project_id) if project_id else None,
        choices=choices if is_writer and choices.origins else None,
        may_replace=may_create(caller, org, None) and may_revoke(caller, org, None),
    )


async def _replaced(
    services: BindingServices, org: Organisation, proposal: Proposal
) -> ShownBinding | None:
    if proposal.replaces is None:
        return None
    async with services.store.read() as session:
        binding = await find_binding(session, org.id, proposal.replaces)
        if binding is None:
            return None
        (shown,) = await show_bindings(session, org.id, [binding], services.clock())
    return shown


PASTED: Final = "pasted"
_PROJECT: Final = "project_id"
_CHECKED_WHEN_SENT: Final = frozenset({"signature", "time"})
RULE_WORDS: Final = {
    "issuer": "The issuer is accepted",
    "audience": "The audience is this service alone",
    "subject": "A binding has the subject",
    "repository": "The binding has the repository id",
    "event": "The binding allows the event",
    "signature": "The issuer signed the token",
    "time": "The token is valid now",
}


@dataclass(frozen=True, slots=True)
class ExplainView:
    """The form and its result, without what was pasted.

    `card` offers the missing binding. `revocable` are the ids of those bindings, among ones that
    match equally well, that the caller may revoke.
    """

    projects: list[tuple[str, str]]
    project_id: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None
    card: ProposalCard | None = None
    revocable: frozenset[str] = frozenset()

    @property
    def difference(self) -> str | None:
        """The smallest difference from what would be trusted, in a sentence."""
        return None if self.explanation is None else smallest_difference(self.explanation)

    @property
    def is_ambiguous(self) -> bool:
        """Whether several bindings match equally well."""
        explanation = self.explanation
        return explanation is not None and explanation.detail is Detail.BINDING_AMBIGUOUS

    @property
    def compared(self) -> NearMatch | None:
        """The binding that the failed rule already shows the difference from."""
        explanation = self.explanation
        failed = None if explanation is None else failed_step(explanation)
        if explanation is None or failed is None or failed.difference is None:
            return None
        with_sub = failed.difference.compared_with
        return next((near for near in explanation.nearest if near.sub_pattern == with_sub), None)

    @property
    def failure(self) -> Failure | None:
        """Why the token is not trusted, if it is not."""
        explanation = self.explanation
        if explanation is None or explanation.code is None:
            return None
        return failure_of(explanation.code, explanation.detail)


async def explain_form(services: BindingServices, org: Organisation) -> ExplainView:
    """The empty form."""
    return ExplainView(await _projects(services, org))


async def explain_pasted(
    services: BindingServices, caller: Caller, org: Organisation, form: Form
) -> ExplainView:
    """The explanation of what was pasted into the form, or the error of one of its fields."""
    projects, project_id = await _projects(services, org), form.get(_PROJECT, "")
    try:
        asked = _asked(form.get(PASTED, ""), project_id or None)
        explanation = await explain_input(services, asked, org)
    except Invalid as fault:
        name = _PROJECT if fault.text.startswith(_PROJECT) else PASTED
        return ExplainView(projects, project_id, {name: fault.text})
    view = ExplainView(projects, project_id, explanation=explanation)
    return await with_remedy(services, caller, org, view)


async def explain_source(
    services: BindingServices, caller: Caller, org: Organisation, source: ShownRejection
) -> ExplainView:
    """The explanation of a rejected subject by its stored claims, if a binding can help.

    Its signature, audience and times were valid when it was sent, so those rules have passed.
    """
    view = await explain_form(services, org)
    explanation = await explain_rejected(services, org, source.row)
    if explanation is None or source.resolution.trusted_by or source.resolution.is_taken:
        return view
    rules = [
        dataclasses.replace(step, status=Status.PASSED, note="When it was sent.")
        if step.name in _CHECKED_WHEN_SENT
        else step
        for step in explanation.rules
    ]
    explanation = dataclasses.replace(explanation, rules=rules)
    view = dataclasses.replace(view, explanation=explanation)
    return await with_remedy(services, caller, org, view)


async def with_remedy(
    services: BindingServices, caller: Caller, org: Organisation, view: ExplainView
) -> ExplainView:
    """`view` with what `caller` can do about it."""
    explanation = view.explanation
    if explanation is None:
        return view
    if explanation.proposal is not None:
        card = await load_proposal_card(services, caller, org, explanation.proposal)
        return dataclasses.replace(view, card=card)
    if not view.is_ambiguous:
        return view
    async with services.store.read() as session:
        bindings = [await find_binding(session, org.id, near.id) for near in explanation.nearest]
    revocable = {each.id for each in bindings if each and may_revoke(caller, org, each.team_id)}
    return dataclasses.replace(view, revocable=frozenset(revocable))


def _asked(pasted: str, project_id: str | None) -> ExplainInput:
    """A token, or claims if it begins as JSON does. Raises NEITHER_TOKEN_NOR_CLAIMS."""
    text = pasted.strip()
    if not text:
        raise NEITHER_TOKEN_NOR_CLAIMS
    if text.startswith("{"):
        return ExplainInput.from_claims(text.encode(errors="surrogatepass"), project_id)
    return ExplainInput.from_token(text, project_id)


async def _projects(services: BindingServices, org: Organisation) -> list[tuple[str, str]]:
    async with services.store.read() as session:
        return await list_names(session, org, Project)


_OF_NEAREST = {
    NearKind.REVOKED: "The binding that trusted it is revoked.",
    NearKind.OTHER_PROJECT: "Its binding is limited to API keys of another project.",
    NearKind.OUTSIDE_ENVELOPE: "Its team’s binding matches no token: see below.",
    NearKind.QUALIFIED: "It differs from a binding only in GitHub’s ids behind the names.",
    NearKind.OTHER_SUBJECT: "Other subjects of its repository are bound.",
}


def smallest_difference(explanation: Explanation) -> str | None:
    """What the rejected token differs in from the nearest binding or value, or None."""
    failed = failed_step(explanation)
    if failed is None:
        return None
    if explanation.nearest:
        return _of_nearest(explanation.nearest[0], failed)
    return None if failed.difference is None else f"{_character(failed.difference)}."


def failed_step(explanation: Explanation) -> ExplainedRule | None:
    """The rule that failed, or None."""
    return next((step for step in explanation.rules if step.status is Status.FAILED), None)


def _of_nearest(near: NearMatch, failed: ExplainedRule) -> str | None:
    if near.kind is NearKind.SPELLING and near.difference is not None:
        return f"{_character(near.difference)} from {_article(near)}."
    if near.kind is NearKind.OTHER_REPOSITORY:
        return f"A binding has its subject, for repository id {near.repository_id}."
    if near.kind is NearKind.OTHER_EVENT:
        return f"It was started by {_one(failed.found)}, which its binding does not list."
    return _OF_NEAREST.get(near.kind)


def _article(near: NearMatch) -> str:
    return f"{'an' if near.state == 'active' else 'a'} {near.state} binding"


def _one(found: object) -> str:
    return found if isinstance(found, str) else "an event the token does not name"


def _character(difference: Difference) -> str:
    detail = f" ({difference.hint})" if difference.hint else ""
    return f"Character {difference.at + 1} differs{detail}"
