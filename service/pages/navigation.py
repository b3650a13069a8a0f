"""Navigation between pages: only to those that the caller may open."""

from dataclasses import dataclass
from typing import Any, Final

from quart import request, url_for

from service.access.callers import Caller, MemberPrincipal, is_allowed
from service.access.cross_site import csrf_token
from service.access.roles import Capability, Role
from service.pages.services import DashboardServices
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Destination:
    """One page of an organisation, for callers with the capability; None is every member."""

    label: str
    endpoint: str
    capability: Capability | None


SECTIONS: Final[dict[str, tuple[Destination, ...]]] = {
    "Overview": (Destination("Overview", "dashboard.overview_page", None),),
    "Audit log": (
        Destination("Rows", "dashboard.audit_page", Capability.AUDIT_READ),
        Destination("Alerts", "dashboard_alerts.alerts_page", Capability.AUDIT_READ),
        Destination("Streams", "dashboard_streams.streams_page", Capability.STREAM_READ),
        Destination("SQL", "dashboard_sql.sql_page", Capability.AUDIT_READ),
        Destination("Exports", "dashboard_exports.exports_page", Capability.AUDIT_READ),
        Destination("Reports", "dashboard_reports.reports_page", Capability.AUDIT_READ),
    ),
    "Trust": (
        Destination("Bindings", "dashboard_bindings.bindings_page", Capability.OIDC_READ),
        Destination("Advice", "dashboard_advice.advice_page", Capability.OIDC_READ),
        Destination("Map", "dashboard_trust_map.map_page", Capability.OIDC_READ),
        Destination("Rejected", "dashboard_rejected.rejected_page", Capability.OIDC_READ),
        Destination("Explain a token", "dashboard_explain.explain_page", Capability.OIDC_READ),
    ),
    "Policy": (
        Destination("Install policy", "dashboard_policy.policy_page", Capability.POLICY_READ),
        Destination("Exceptions", "dashboard_exceptions.exceptions_page", Capability.POLICY_READ),
        Destination("Affected installs", "dashboard_affected.affected_page", Capability.AUDIT_READ),
        Destination("Install proxy", "dashboard_proxy.proxy_page", Capability.POLICY_READ),
    ),
    "Settings": (
        Destination("Members", "dashboard_members.members_page", Capability.ORG_ADMIN),
        Destination("Teams", "dashboard_teams.teams_page", Capability.ORG_ADMIN),
        Destination("Projects", "dashboard_projects.projects_page", Capability.ORG_ADMIN),
        Destination("API keys", "dashboard_keys.keys_page", Capability.ORG_ADMIN),
        Destination("Roles", "dashboard_roles.roles_page", Capability.ORG_ADMIN),
    ),
}
"""The organisation's pages by section, in the order of the navigation.

The first page of a section that the caller may open is the one that its name leads to.
"""

_WITHIN_AUDIT: Final = ("dashboard_investigate.package_page", "dashboard_investigate.run_page")


def may(caller: Caller, capability: Capability, org: Organisation) -> bool:
    """Whether `caller` has the capability. Only for display; actions are authorized again."""
    return is_allowed(caller.require, capability, org)


def may_decide_over(caller: Caller, role: str, org: Organisation) -> bool:
    """Whether `caller` may manage `role`. Only for display; actions are authorized again."""
    return is_allowed(caller.require_outranks, Role(role), org)


@dataclass(frozen=True, slots=True)
class NavItem:
    """One entry of the navigation. `is_current` marks the page that is shown."""

    label: str
    path: str
    is_current: bool


def navigation(caller: Caller, org: Organisation) -> dict[str, list[NavItem]]:
    """The sections of `org` that `caller` may open, and the other pages of the current one.

    A page below one of them, such as one binding below the list, has that one as its neighbour.
    """
    allowed = {
        section: [
            (page.label, url_for(page.endpoint, slug=org.slug))
            for page in pages
            if page.capability is None or may(caller, page.capability, org)
        ]
        for section, pages in SECTIONS.items()
    }
    # A page below another one belongs to it; the overview is above them all, and has none below.
    overview = url_for("dashboard.overview_page", slug=org.slug)
    here = f"{request.path}/"
    paths = [path for pages in allowed.values() for _, path in pages if here.startswith(f"{path}/")]
    current = max(paths, key=len, default=None)
    if current == overview != request.path:
        current = None
    if request.endpoint in _WITHIN_AUDIT:
        current = url_for("dashboard.audit_page", slug=org.slug)
    sections: list[NavItem] = []
    neighbours: list[NavItem] = []
    for section, pages in allowed.items():
        items = [NavItem(label, path, path == current) for label, path in pages]
        if items:
            is_current = any(item.is_current for item in items)
            sections.append(NavItem(section, items[0].path, is_current))
            if is_current:
                neighbours = [item for item in items if item.path != request.path]
    return {"sections": sections, "neighbours": neighbours}


def page_context(services: DashboardServices, caller: Caller, org: Organisation) -> dict[str, Any]:
    """Template variables of every page of `org`.

    `may` are the names of the capabilities that `caller` has; `csrf` goes into every form; ages are
    those at `now`.
    """
    return {
        "org": org,
        "now": services.clock(),
        "navigation": navigation(caller, org),
        "may": {capability for capability in Capability if may(caller, capability, org)},
        "csrf": csrf_token(services.settings.secret_key, caller.session_id)
        if isinstance(caller, MemberPrincipal)
        else None,
    }
