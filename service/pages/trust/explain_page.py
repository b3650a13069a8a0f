"""Explain a pasted token or claims: each rule in words, and the missing binding.

What is pasted is not kept: it appears in no page, log, row or URL.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs
from quart import Blueprint
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.ci.verifier.codes import Detail
from service.core.errors import Invalid
from service.pages.navigation import may
from service.pages.page import Form, FormState, Page, PageCall, View, page_post
from service.pages.trust.binding_form import load_choices, typed_of
from service.pages.trust.binding_view import ShownBinding, may_create, may_revoke, show_bindings
from service.pages.trust.failures import Failure, failure_of
from service.pages.trust.rejected_page import ShownRejection
from service.store.organisations import list_names
from service.store.tables import Project
from service.trust.bindings.repository import find_binding
from service.trust.explain.evaluation import Status
from service.trust.explain.explain_api import ExplainInput, explain_input
from service.trust.explain.explanation import ExplainedRule, Explanation
from service.trust.explain.nearest import NearKind, NearMatch
from service.trust.explain.proposals import Proposal
from service.trust.explain.text_diff import Difference
from service.trust.refusals import NEITHER_TOKEN_NOR_CLAIMS
from service.trust.rejected.rejected_api import explain_rejected


async def load_proposal_card(call: PageCall, proposal: Proposal) -> View:
    """The card of `proposal` for the caller.

    In it, `typed` fills the form of the proposal, `beside` that of the other one. `replaced` is the
    binding that the proposal replaces. `project` is the name of the project that the new binding is
    limited to. `choices` are None for callers that cannot create bindings.
    """
    choices = await load_choices(call)
    is_writer = may(call.caller, Capability.OIDC_WRITE, call.org)
    project_id = proposal.body["project_id"]
    return {
        "proposal": proposal,
        "typed": typed_of(proposal.body),
        "beside": None if proposal.beside is None else typed_of(proposal.beside),
        "replaced": await _replaced(call, proposal),
        "project": dict(choices.projects).get(project_id, project_id) if project_id else None,
        "choices": choices if is_writer and choices.origins else None,
        "may_replace": may_create(call.caller, call.org, None)
        and may_revoke(call.caller, call.org, None),
    }


async def _replaced(call: PageCall, proposal: Proposal) -> ShownBinding | None:
    if proposal.replaces is None:
        return None
    async with call.read() as session:
        binding = await find_binding(session, call.org.id, proposal.replaces)
        if binding is None:
            return None
        (shown,) = await show_bindings(session, call.org.id, [binding], call.services.clock())
    return shown


blueprint = Blueprint(
    "dashboard_explain", __name__, url_prefix="/admin/ui/orgs/<slug>/bindings/explain"
)

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
    card: View | None = None
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


@Page(blueprint, "", "binding_explain.html", needs=Capability.OIDC_READ)
async def explain_page(call: PageCall) -> View:
    """The form that explains a token."""
    return {"explain": await explain_form(call), "source": None, "rule_words": RULE_WORDS}


@page_post(blueprint, "", needs=Capability.OIDC_READ)
async def explain(call: PageCall, form: Form) -> ResponseReturnValue:
    """Explain why a pasted token is trusted or not, with a form for the missing binding."""
    return await explained_page(call, await explain_pasted(call, form))


async def explained_page(
    call: PageCall, view: ExplainView, source: ShownRejection | None = None
) -> ResponseReturnValue:
    """The page of `view`, which explains a pasted token, or the rejected subject `source`."""
    state = FormState(status=Invalid.status if view.faults else 200)
    return await explain_page.show(call, state, {}, explain=view, source=source)


async def explain_form(call: PageCall) -> ExplainView:
    """The empty form."""
    return ExplainView(await _projects(call))


async def explain_pasted(call: PageCall, form: Form) -> ExplainView:
    """The explanation of what was pasted into the form, or the error of one of its fields."""
    projects, project_id = await _projects(call), form.get(_PROJECT, "")
    try:
        pasted = _input_of(form.get(PASTED, ""), project_id or None)
        explanation = await explain_input(call.services.bindings, pasted, call.org)
    except Invalid as fault:
        name = _PROJECT if fault.text.startswith(_PROJECT) else PASTED
        return ExplainView(projects, project_id, {name: fault.text})
    view = ExplainView(projects, project_id, explanation=explanation)
    return await with_remedy(call, view)


async def explain_source(call: PageCall, source: ShownRejection) -> ExplainView:
    """The explanation of a rejected subject by its stored claims, if a binding can help.

    Its signature, audience and times were valid when it was sent, so those rules have passed.
    """
    view = await explain_form(call)
    explanation = await explain_rejected(call.services.bindings, call.org, source.row)
    if explanation is None or source.resolution.trusted_by or source.resolution.is_taken:
        return view
    rules = [
        structs.replace(step, status=Status.PASSED, note="When it was sent.")
        if step.name in _CHECKED_WHEN_SENT
        else step
        for step in explanation.rules
    ]
    explanation = dataclasses.replace(explanation, rules=rules)
    view = dataclasses.replace(view, explanation=explanation)
    return await with_remedy(call, view)


async def with_remedy(call: PageCall, view: ExplainView) -> ExplainView:
    """`view` with what the caller can do about it."""
    explanation = view.explanation
    if explanation is None:
        return view
    if explanation.proposal is not None:
        card = await load_proposal_card(call, explanation.proposal)
        return dataclasses.replace(view, card=card)
    if not view.is_ambiguous:
        return view
    async with call.read() as session:
        bindings = [
            await find_binding(session, call.org.id, near.id) for near in explanation.nearest
        ]
    revocable = {
        each.id for each in bindings if each and may_revoke(call.caller, call.org, each.team_id)
    }
    return dataclasses.replace(view, revocable=frozenset(revocable))


def _input_of(pasted: str, project_id: str | None) -> ExplainInput:
    """A token, or claims if it begins as JSON does. Raises NEITHER_TOKEN_NOR_CLAIMS."""
    text = pasted.strip()
    if not text:
        raise NEITHER_TOKEN_NOR_CLAIMS
    if text.startswith("{"):
        return ExplainInput.from_claims(text.encode(errors="surrogatepass"), project_id)
    return ExplainInput(text, has_signature=True, project_id=project_id)


async def _projects(call: PageCall) -> list[tuple[str, str]]:
    async with call.read() as session:
        return await list_names(session, call.org, Project)


_OF_NEAREST = {
    NearKind.REVOKED: "The binding that trusted it is revoked.",
    NearKind.OTHER_PROJECT: "Its binding is limited to API keys of another project.",
    NearKind.OUTSIDE_ENVELOPE: "Its team’s binding matches no token: see below.",
    NearKind.QUALIFIED: "It differs from a binding only in GitHub’s ids behind the names.",
    NearKind.RENAMED: "A binding has the earlier name of its repository.",
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
        article = "an" if near.state == "active" else "a"
        return f"{_character(near.difference)} from {article} {near.state} binding."
    if near.kind is NearKind.OTHER_REPOSITORY:
        return f"A binding has its subject, for repository id {near.repository_id}."
    if near.kind is NearKind.OTHER_EVENT:
        event = (
            failed.found if isinstance(failed.found, str) else "an event the token does not name"
        )
        return f"It was started by {event}, which its binding does not list."
    return _OF_NEAREST.get(near.kind)


def _character(difference: Difference) -> str:
    detail = f" ({difference.hint})" if difference.hint else ""
    return f"Character {difference.at + 1} differs{detail}"
