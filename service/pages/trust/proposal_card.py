"""The card that offers a proposed binding: what it says, and the forms that create it."""

from dataclasses import dataclass

from service.access.callers import Caller
from service.access.roles import Capability
from service.pages.navigation import may
from service.pages.trust.binding_view import ShownBinding, show_bindings
from service.pages.trust.create_page import Choices, Typed, load_choices, typed_of
from service.pages.trust.permissions import may_create, may_revoke
from service.store.tables import Organisation
from service.trust.bindings.repository import find_binding
from service.trust.bindings.services import BindingServices
from service.trust.explain.proposals import Proposal


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
