"""Routes of the pages that replace a binding, or revoke all of a repository."""

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.callers import Caller
from service.access.refusals import NotOrgAdmin, NotTeamAdmin
from service.access.roles import Capability
from service.core.errors import Invalid
from service.pages.form_auth import authorize_form
from service.pages.navigation import may, render_page
from service.pages.services import DashboardServices
from service.pages.trust.replace_page import (
    load_replace_view,
    refused_replacement,
    replace_typed,
    typed_replacement,
)
from service.pages.trust.repository_page import (
    PARAMETERS,
    load_repository_view,
    refused_revocation,
    revoke_listed,
)
from service.pages.trust.routes import redirect_to_binding, render_revoked
from service.store.tables import Organisation
from service.trust.refusals import (
    BindingExists,
    BindingNotFound,
    RepositoryChanged,
    RepositoryNotBound,
)
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_trust_changes", __name__, url_prefix="/admin/ui/orgs/<slug>")
_REPLACE = "binding_replace.html"
_REVOKE = "binding_revoke_repository.html"


@blueprint.get("/bindings/<binding:binding_id>/replace")
@receives(DashboardServices)
async def replace_page(
    services: DashboardServices, slug: str, binding_id: str
) -> ResponseReturnValue:
    """Show the form that replaces a binding, filled in with its terms."""
    caller, org = await _reading_writer(services, slug)
    query_parameters(request, ())
    view = await load_replace_view(services.bindings, caller, org, binding_id)
    return await render_page(services.settings, caller, org, _REPLACE, page=view)


@blueprint.post("/bindings/<binding:binding_id>/replace")
@receives(DashboardServices)
async def replace(services: DashboardServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Replace a binding and show its successor, or show the form again with its errors."""
    caller, org, form = await authorize_form(services, slug, Capability.OIDC_WRITE)
    given = typed_replacement(form)
    try:
        successor_id = await replace_typed(services.bindings, caller, org, binding_id, given)
    except BindingNotFound:  # or already revoked, which its page can show
        caller.require(Capability.OIDC_READ, org)
        return await render_revoked(services, caller, org, binding_id)
    except (Invalid, NotOrgAdmin, NotTeamAdmin, BindingExists) as refusal:
        view = await refused_replacement(services.bindings, caller, org, binding_id, given, refusal)
        return await render_page(
            services.settings, caller, org, _REPLACE, refusal.status, page=view
        )
    return redirect_to_binding(caller, org, successor_id, "replaced")


@blueprint.get("/bindings/revoke")
@receives(DashboardServices)
async def repository_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """List the active bindings of a repository, with the form that revokes them."""
    caller, org = await _reading_writer(services, slug)
    parameters = query_parameters(request, PARAMETERS)
    given = {name: text for name in PARAMETERS if (text := only(parameters, name)) is not None}
    view = await load_repository_view(services.bindings, caller, org, given)
    return await render_page(services.settings, caller, org, _REVOKE, view.status, page=view)


@blueprint.post("/bindings/revoke")
@receives(DashboardServices)
async def revoke_repository_form(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Revoke the bindings that the form lists, or show the current ones with an error."""
    caller, org, form = await authorize_form(services, slug, Capability.OIDC_WRITE)
    try:
        repository = await revoke_listed(services.bindings, caller, org, form)
    except (Invalid, RepositoryChanged, RepositoryNotBound) as refusal:
        caller.require(Capability.OIDC_READ, org)
        view = await refused_revocation(services.bindings, caller, org, form, refusal)
        return await render_page(services.settings, caller, org, _REVOKE, view.status, page=view)
    if not may(caller, Capability.OIDC_READ, org):
        return redirect(url_for("dashboard.overview_page", slug=org.slug), 303)
    page = url_for(
        "dashboard_trust.bindings_page",
        slug=org.slug,
        text=repository.repository_id,
        state="revoked",
        done="revoked_repository",
    )
    return redirect(page, 303)


async def _reading_writer(services: DashboardServices, slug: str) -> tuple[Caller, Organisation]:
    """A caller that may change bindings and read them, too, as the page shows them."""
    caller, org = await services.authorize(slug, Capability.OIDC_WRITE)
    caller.require(Capability.OIDC_READ, org)
    return caller, org
