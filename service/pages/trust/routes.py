"""Routes of the pages about bindings and rejected subjects."""

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.callers import Caller
from service.access.refusals import NotOrgAdmin, NotTeamAdmin
from service.access.roles import Capability
from service.core.errors import Invalid, ReasonInvalid
from service.core.text_rules import parse_reason
from service.pages.form_auth import authorize_form
from service.pages.navigation import may, render_page
from service.pages.services import DashboardServices
from service.pages.trust.binding_page import BindingView, load_binding_view
from service.pages.trust.bindings_page import PARAMETERS, load_bindings_view
from service.pages.trust.create_page import (
    CreateView,
    create_typed,
    load_choices,
    refused_form,
    typed,
)
from service.pages.trust.explain_page import (
    RULE_WORDS,
    ExplainView,
    explain_form,
    explain_pasted,
    explain_source,
)
from service.pages.trust.rejected_page import (
    ShownRejection,
    load_rejected_view,
    load_rejection_view,
)
from service.store.tables import Organisation
from service.trust.bindings.changes import revoke_binding
from service.trust.refusals import BindingExists, BindingNotFound
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_trust", __name__, url_prefix="/admin/ui/orgs/<slug>")

DONE = {
    "created": "The binding is active: from now on tokens of this job are trusted.",
    "replaced": "The binding is active and has replaced the other one in the same instant.",
    "revoked": "The binding is revoked: from now on it matches no token.",
    "revoked_repository": "The repository is revoked: none of its bindings matches a token now.",
}
"""The page's confirmation after each form."""


@blueprint.get("/bindings")
@receives(DashboardServices)
async def bindings_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show which CI jobs are trusted, or were at an earlier instant."""
    caller, org = await services.authorize(slug, Capability.OIDC_READ)
    parameters = query_parameters(request, (*PARAMETERS, "done"))
    view = await load_bindings_view(services.bindings, org, parameters)
    done = DONE.get(only(parameters, "done") or "")
    return await render_page(
        services.settings, caller, org, "bindings.html", view.status, page=view, done=done
    )


@blueprint.get("/bindings/new")
@receives(DashboardServices)
async def new_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the form that creates a binding, filled in for a rejected subject if requested."""
    caller, org = await services.authorize(slug, Capability.OIDC_WRITE)
    digest = only(query_parameters(request, ("from",)), "from")
    if digest is None:
        choices = await load_choices(services.bindings, caller, org)
        return await _new(services, caller, org, CreateView(choices))
    caller.require(Capability.OIDC_READ, org)
    source = await load_rejection_view(services.bindings, org, digest)
    view = await explain_source(services.bindings, caller, org, source)
    return await _explained(services, caller, org, view, source)


@blueprint.post("/bindings/new")
@receives(DashboardServices)
async def create(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Create a binding and show it, or show the form again with its errors."""
    caller, org, form = await authorize_form(services, slug, Capability.OIDC_WRITE)
    given = typed(form)
    try:
        binding_id = await create_typed(services.bindings, caller, org, given)
    except (Invalid, NotOrgAdmin, NotTeamAdmin, BindingExists) as refusal:
        view = await refused_form(services.bindings, caller, org, given, refusal)
        return await _new(services, caller, org, view, refusal.status)
    return redirect_to_binding(caller, org, binding_id, "created")


@blueprint.get("/bindings/explain")
@receives(DashboardServices)
async def explain_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the form that explains a token."""
    caller, org = await services.authorize(slug, Capability.OIDC_READ)
    return await _explained(services, caller, org, await explain_form(services.bindings, org))


@blueprint.post("/bindings/explain")
@receives(DashboardServices)
async def explain(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Explain why a pasted token is trusted or not, with a form for the missing binding."""
    caller, org, form = await authorize_form(services, slug, Capability.OIDC_READ)
    view = await explain_pasted(services.bindings, caller, org, form)
    status = Invalid.status if view.faults else 200
    return await _explained(services, caller, org, view, status=status)


@blueprint.get("/bindings/<binding:binding_id>")
@receives(DashboardServices)
async def binding_page(
    services: DashboardServices, slug: str, binding_id: str
) -> ResponseReturnValue:
    """Show one binding and its history."""
    caller, org = await services.authorize(slug, Capability.OIDC_READ)
    view = await load_binding_view(services, caller, org, binding_id)
    return await _binding(services, view, caller, org)


@blueprint.post("/bindings/<binding:binding_id>/revoke")
@receives(DashboardServices)
async def revoke(services: DashboardServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Revoke a binding permanently and show its page."""
    caller, org, form = await authorize_form(services, slug, Capability.OIDC_WRITE)
    given = {"reason": form.get("reason", "")}
    try:
        reason = parse_reason(given["reason"])
        change = services.access.change(caller, org, Capability.OIDC_WRITE)
        async with change as (work, by, present):
            await revoke_binding(work, present, binding_id, reason, by)
    except ReasonInvalid as fault:
        caller.require(Capability.OIDC_READ, org)
        view = await load_binding_view(
            services, caller, org, binding_id, given=given, faults={"reason": fault.text}
        )
        return await _binding(services, view, caller, org, fault.status)
    except BindingNotFound:  # or already revoked, which its page can show
        caller.require(Capability.OIDC_READ, org)
        return await render_revoked(services, caller, org, binding_id)
    return redirect_to_binding(caller, org, binding_id, "revoked")


@blueprint.get("/rejected")
@receives(DashboardServices)
async def rejected_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the CI identities that were rejected recently, and what each of them lacks."""
    caller, org = await services.authorize(slug, Capability.OIDC_READ)
    query_parameters(request, ())
    view = await load_rejected_view(services.bindings, org)
    return await render_page(services.settings, caller, org, "rejected.html", page=view)


async def render_revoked(
    services: DashboardServices, caller: Caller, org: Organisation, binding_id: str
) -> ResponseReturnValue:
    """The page of a binding that was revoked before. Raises BindingNotFound."""
    view = await load_binding_view(services, caller, org, binding_id, is_already_revoked=True)
    return await _binding(services, view, caller, org, 409)


def redirect_to_binding(
    caller: Caller, org: Organisation, binding_id: str, done: str
) -> ResponseReturnValue:
    """Redirect to the binding, or to the overview if the caller may change but not read it."""
    if not may(caller, Capability.OIDC_READ, org):
        return redirect(url_for("dashboard.overview_page", slug=org.slug), 303)
    return redirect(
        url_for("dashboard_trust.binding_page", slug=org.slug, binding_id=binding_id, done=done),
        303,
    )


async def _new(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    create: CreateView,
    status: int = 200,
) -> ResponseReturnValue:
    explain = await explain_form(services.bindings, org)
    return await render_page(
        services.settings, caller, org, "binding_new.html", status, explain=explain, create=create
    )


async def _explained(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    view: ExplainView,
    source: ShownRejection | None = None,
    status: int = 200,
) -> ResponseReturnValue:
    return await render_page(
        services.settings,
        caller,
        org,
        "binding_explain.html",
        status,
        explain=view,
        source=source,
        rule_words=RULE_WORDS,
    )


async def _binding(
    services: DashboardServices,
    view: BindingView,
    caller: Caller,
    org: Organisation,
    status: int = 200,
) -> ResponseReturnValue:
    done = DONE.get(request.args.get("done", ""))
    return await render_page(
        services.settings, caller, org, "binding.html", status, page=view, done=done
    )
