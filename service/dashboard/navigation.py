"""Navigation between pages: only to those that the caller may open."""

from dataclasses import dataclass
from typing import Any, Final

from quart import request, url_for

from service.access.callers import Caller, MemberPrincipal
from service.access.csrf import csrf_token
from service.errors import Forbidden
from service.orgs.roles import Capability
from service.settings import Settings
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Destination:
    """One page of an organisation, for callers with the capability; None is every member."""

    label: str
    endpoint: str
    capability: Capability | None


DESTINATIONS: Final = (
    Destination("Overview", "dashboard.overview_page", None),
    Destination("Audit log", "dashboard.audit_page", Capability.AUDIT_READ),
    Destination("Bindings", "dashboard_trust.bindings_page", Capability.OIDC_READ),
    Destination("Rejected", "dashboard_trust.rejected_page", Capability.OIDC_READ),
    Destination("Members", "dashboard_people.members_page", Capability.ORG_ADMIN),
    Destination("Teams", "dashboard_people.teams_page", Capability.ORG_ADMIN),
    Destination("Projects", "dashboard_people.projects_page", Capability.ORG_ADMIN),
    Destination("API keys", "dashboard_people.keys_page", Capability.ORG_ADMIN),
    Destination("Roles", "dashboard_people.roles_page", Capability.ORG_ADMIN),
)
"""The organisation's pages, in the order of the navigation."""


def may(caller: Caller, capability: Capability, org: Organisation) -> bool:
    """Whether `caller` has the capability. Only for display; actions are authorized again."""
    try:
        caller.require(capability, org)
    except Forbidden:
        return False
    return True


@dataclass(frozen=True, slots=True)
class NavItem:
    """One entry of the navigation. `is_current` marks the page that is shown."""

    label: str
    path: str
    is_current: bool


def navigation(caller: Caller, org: Organisation) -> list[NavItem]:
    """The pages of `org` that `caller` may open."""
    pages = [
        (page.label, url_for(page.endpoint, slug=org.slug))
        for page in DESTINATIONS
        if page.capability is None or may(caller, page.capability, org)
    ]
    # A page below another one belongs to it; the overview is above them all.
    current = max((path for _, path in pages if _is_within(path)), key=len, default=None)
    return [NavItem(label, path, path == current) for label, path in pages]


def page_context(settings: Settings, caller: Caller, org: Organisation) -> dict[str, Any]:
    """Template variables of every page of `org`.

    `may` are the names of the capabilities that `caller` has; `csrf` goes into every form.
    """
    return {
        "org": org,
        "navigation": navigation(caller, org),
        "may": {capability for capability in Capability if may(caller, capability, org)},
        "csrf": csrf_token(settings.secret_key, caller.session_id)
        if isinstance(caller, MemberPrincipal)
        else None,
    }


def _is_within(path: str) -> bool:
    return request.path == path or request.path.startswith(f"{path}/")
