"""Routes of the pages about exceptions: members ask, callers who may change the policy decide."""

from dataclasses import replace
from typing import Final

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid
from service.pages.form_auth import authorize_form, own_form
from service.pages.navigation import may, render_page
from service.pages.policy.exceptions_page import (
    FIELDS,
    ask,
    decide,
    load_ask_view,
    load_exceptions_view,
)
from service.pages.services import DashboardServices
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint(
    "dashboard_exceptions", __name__, url_prefix="/admin/ui/orgs/<slug>/policy/exceptions"
)

DONE: Final = {
    "asked": "Your request is recorded. Who may change the policy sees it, and decides.",
    "allowed": "Allowed: the policy has a rule for this release now.",
    "declined": "Declined: the policy is unchanged.",
}
"""The pages' confirmations after their forms."""


@blueprint.get("")
@receives(DashboardServices)
async def exceptions_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the requests for exceptions, with the forms that decide on them."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    done = only(query_parameters(request, ("done",)), "done") or ""
    view = await load_exceptions_view(services, caller, org)
    return await render_page(
        services.settings,
        caller,
        org,
        "policy/exceptions.html",
        page=view,
        done=DONE.get(done),
    )


@blueprint.get("/new")
@receives(DashboardServices)
async def new_exception(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the form that asks for an exception, filled in with the release of the address."""
    caller, org = await services.access.authorize_member(slug)
    parameters = query_parameters(request, (*FIELDS[:3], "done"))
    given = {name: only(parameters, name) or "" for name in FIELDS}
    done = DONE.get(only(parameters, "done") or "")
    view = await load_ask_view(services, org, given)
    return await render_page(
        services.settings, caller, org, "policy/exception_new.html", page=view, done=done
    )


@blueprint.post("/new")
@receives(DashboardServices)
async def ask_exception(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Ask for an exception, or show the form again with its errors."""
    caller, org = await services.access.authorize_member(slug)
    form = await own_form(services.settings, caller)
    given = {name: form.get(name, "") for name in FIELDS}
    refused = await ask(services, caller, org, given)
    if refused is not None:
        return await render_page(
            services.settings,
            caller,
            org,
            "policy/exception_new.html",
            refused.status,
            page=refused,
            done=None,
        )
    is_reader = may(caller, Capability.POLICY_READ, org)
    target = "exceptions_page" if is_reader else "new_exception"
    return redirect(url_for(f"dashboard_exceptions.{target}", slug=slug, done="asked"), 303)


@blueprint.post("/<exception_id>/decide")
@receives(DashboardServices)
async def decide_form(
    services: DashboardServices, slug: str, exception_id: str
) -> ResponseReturnValue:
    """Allow or decline a request, and show the others."""
    caller, org, form = await authorize_form(services, slug, Capability.POLICY_WRITE)
    try:
        state = await decide(services, caller, org, exception_id, form)
    except (Invalid, Conflict) as refusal:
        caller.require(Capability.POLICY_READ, org)
        view = replace(
            await load_exceptions_view(services, caller, org),
            refused=exception_id,
            given={"reason": form.get("reason", "")},
            fault=refusal.text,
            status=refusal.status,
        )
        return await render_page(
            services.settings,
            caller,
            org,
            "policy/exceptions.html",
            view.status,
            page=view,
            done=None,
        )
    if not may(caller, Capability.POLICY_READ, org):
        return redirect(url_for("dashboard.overview_page", slug=slug), 303)
    return redirect(url_for("dashboard_exceptions.exceptions_page", slug=slug, done=state), 303)
