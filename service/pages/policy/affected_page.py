"""The page of past installs that new advisories and deny rules would have blocked."""

from quart import Blueprint

from analytics.model.filters import Query, among
from analytics.model.policy_envelopes import InstallsMatched
from service.access.roles import Capability
from service.audit.query_service import LIMIT_DEFAULT, PageRequest
from service.pages.page import Page, View
from service.pages.rows import decoded_entries
from service.pages.services import DashboardServices
from service.web.endpoint import Call

blueprint = Blueprint("dashboard_affected", __name__, url_prefix="/admin/ui/orgs/<slug>/affected")


@Page(blueprint, "", "policy/affected.html", needs=Capability.AUDIT_READ)
async def affected_page(call: Call[DashboardServices]) -> View:
    """The newest matches, each with its packages."""
    matches = Query(conditions=(among("event", [InstallsMatched.event]),))
    wanted = PageRequest(matches, LIMIT_DEFAULT, None)
    shown = await call.services.audit.queries.page(call.org, wanted, call.services.clock())
    return {"matches": decoded_entries(shown.entries), "event": InstallsMatched.event}
