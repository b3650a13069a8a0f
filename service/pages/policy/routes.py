"""Routes of the pages about the install policy."""

import re
from typing import Final

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Invalid, PolicyMoved
from service.pages.form_auth import authorize_form
from service.pages.navigation import may, page_context, render_page
from service.pages.policy.check_page import PARAMETERS, load_check_view
from service.pages.policy.edits import Edit, EditRefused, read_edit
from service.pages.policy.policy_page import Refused, load_policy_view
from service.pages.policy.preview_page import load_preview_view, read_replaced, save_edit
from service.pages.services import DashboardServices
from service.pages.streaming import streamed
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_policy", __name__, url_prefix="/admin/ui/orgs/<slug>/policy")

DONE: Final = {"saved": "Saved. The policy holds from the next request on."}
"""The page's confirmation after its forms."""

_REVISION: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@blueprint.get("")
@receives(DashboardServices)
async def policy_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the policy in force or an earlier revision, and the forms that change it."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    parameters = query_parameters(request, ("revision", "done"))
    text = only(parameters, "revision")
    if text is not None and not _REVISION.fullmatch(text):
        raise Invalid("revision must be a positive integer", field="revision")
    number = None if text is None else int(text)
    return await _page(services, caller, org, number, done=only(parameters, "done") or "")


@blueprint.get("/check")
@receives(DashboardServices)
async def check_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show whether a release would be allowed, and why. Nothing is recorded."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    view = await load_check_view(services, org, query_parameters(request, PARAMETERS))
    return await render_page(
        services.settings, caller, org, "policy/check.html", view.status, page=view
    )


@blueprint.post("/preview")
@receives(DashboardServices)
async def preview(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show what a change would have done, with the button that saves it."""
    caller, org, form = await authorize_form(services, slug, Capability.POLICY_WRITE)
    return await _preview(services, caller, org, read_edit(form), read_replaced(form))


@blueprint.post("")
@receives(DashboardServices)
async def save(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Save a change, or show it again on top of what was saved concurrently."""
    caller, org, form = await authorize_form(services, slug, Capability.POLICY_WRITE)
    edit, seen = read_edit(form), read_replaced(form)
    try:
        await save_edit(services, caller, org, edit, seen)
    except PolicyMoved:
        return await _preview(services, caller, org, edit, seen, status=PolicyMoved.status)
    except EditRefused as refusal:
        return await _refused(services, caller, org, edit, refusal)
    if not may(caller, Capability.POLICY_READ, org):
        return redirect(url_for("dashboard.overview_page", slug=org.slug), 303)
    return redirect(url_for("dashboard_policy.policy_page", slug=org.slug, done="saved"), 303)


async def _preview(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    edit: Edit,
    seen: int,
    status: int = 200,
) -> ResponseReturnValue:
    caller.require(Capability.POLICY_READ, org)
    try:
        view = await load_preview_view(services, caller, org, edit, seen, is_refused=status != 200)
    except EditRefused as refusal:
        return await _refused(services, caller, org, edit, refusal)
    context = page_context(services.settings, caller, org)
    return await streamed("policy/preview.html", status, page=view, **context)


async def _refused(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    edit: Edit,
    refusal: EditRefused,
) -> ResponseReturnValue:
    """The policy page with the form as it was filled in, and its errors."""
    caller.require(Capability.POLICY_READ, org)
    return await _page(services, caller, org, refused=Refused(edit, refusal.faults))


async def _page(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    number: int | None = None,
    refused: Refused | None = None,
    done: str = "",
) -> ResponseReturnValue:
    view = await load_policy_view(services, caller, org, number, refused)
    context = page_context(services.settings, caller, org)
    return await streamed(
        "policy/policy.html", view.status, page=view, done=DONE.get(done), **context
    )
