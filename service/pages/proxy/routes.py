"""The route of the page about the install proxy."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.pages.navigation import page_context
from service.pages.proxy.proxy_page import load_proxy_view
from service.pages.services import DashboardServices
from service.pages.streaming import streamed
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_proxy", __name__, url_prefix="/admin/ui/orgs/<slug>/proxy")


@blueprint.get("")
@receives(DashboardServices)
async def proxy_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the proxy's registries, cache and installs, and how clients are set up."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    parameters = query_parameters(request, ("client", "provider"))
    view = await load_proxy_view(services, caller, org, parameters)
    return await streamed("proxy.html", page=view, **page_context(services.settings, caller, org))
