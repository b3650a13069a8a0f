"""The pages of bindings and of rejected subjects."""

from quart import Blueprint, redirect, render_template, request, url_for
from quart.typing import ResponseReturnValue

from analytics.rows import VerdictSource
from service.access.admission import admit, admit_again
from service.access.callers import Caller
from service.access.capabilities import Capability
from service.bindings.changes import revoke_binding
from service.bindings.rules import parse_reason
from service.dashboard.navigation import frame
from service.dashboard.posting import admit_form
from service.dashboard.trust.binding_page import BindingView, look_at_binding
from service.dashboard.trust.bindings_page import PARAMETERS, look_at_bindings
from service.errors import BindingNotFound, ReasonInvalid
from service.services import services
from service.store.tables import Organisation
from service.web.inputs import query_parameters

blueprint = Blueprint("dashboard_trust", __name__, url_prefix="/admin/ui/orgs/<slug>")

DONE = {
    "created": "The binding is active: from now on tokens of this job are trusted.",
    "revoked": "The binding is revoked: from now on it matches no token.",
}
"""What a page says of the form that led to it."""


@blueprint.get("/bindings")
async def bindings_page(slug: str) -> ResponseReturnValue:
    """Show which CI jobs are trusted, or were at some instant."""
    caller, org = await admit(slug, Capability.OIDC_READ, VerdictSource.DASHBOARD)
    view = await look_at_bindings(org, query_parameters(request, PARAMETERS))
    page = await render_template("bindings.html", page=view, **frame(caller, org))
    return page, view.status


@blueprint.get("/bindings/<binding:binding_id>")
async def binding_page(slug: str, binding_id: str) -> ResponseReturnValue:
    """Show one binding and what became of it."""
    caller, org = await admit(slug, Capability.OIDC_READ, VerdictSource.DASHBOARD)
    view = await look_at_binding(caller, org, binding_id)
    return await _binding(view, caller, org)


@blueprint.post("/bindings/<binding:binding_id>/revoke")
async def revoke(slug: str, binding_id: str) -> ResponseReturnValue:
    """Revoke a binding for good; its page says what became of it."""
    here = services()
    caller, org, form = await admit_form(slug, Capability.OIDC_WRITE)
    given = {"reason": form.get("reason", "")}
    try:
        reason = parse_reason(given["reason"])
        async with here.store.write() as work:
            present = await admit_again(work.session, caller, org, Capability.OIDC_WRITE)
            await revoke_binding(work, present[1], binding_id, reason, present[0])
    except ReasonInvalid as fault:
        view = await look_at_binding(
            caller, org, binding_id, given=given, faults={"reason": fault.text}
        )
        return await _binding(view, caller, org, fault.status)
    except BindingNotFound:  # or revoked by somebody else: then its page can say so
        view = await look_at_binding(caller, org, binding_id, is_too_late=True)
        return await _binding(view, caller, org, 409)
    return redirect(url_for(".binding_page", slug=slug, binding_id=binding_id, done="revoked"), 303)


async def _binding(
    view: BindingView, caller: Caller, org: Organisation, status: int = 200
) -> ResponseReturnValue:
    done = DONE.get(request.args.get("done", ""))
    page = await render_template("binding.html", page=view, done=done, **frame(caller, org))
    return page, status
