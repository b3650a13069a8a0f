"""Where a page can lead: only to what whoever looks at it may see."""

from dataclasses import dataclass
from typing import Any, Final

from quart import url_for

from service.access.callers import Caller, SignedIn
from service.access.capabilities import Capability
from service.access.csrf import csrf_token
from service.errors import Forbidden
from service.services import services
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Destination:
    """One page of an organisation, for those with the capability."""

    label: str
    endpoint: str
    capability: Capability


DESTINATIONS: Final = (Destination("Audit log", "dashboard.audit_page", Capability.AUDIT_READ),)
"""The organisation's pages, in the order of the navigation."""


def may(caller: Caller, capability: Capability, org: Organisation) -> bool:
    """Whether `caller` would be let in. For what is shown; what is done asks again."""
    try:
        caller.require(capability, org)
    except Forbidden:
        return False
    return True


def navigation(caller: Caller, org: Organisation) -> list[tuple[str, str]]:
    """Label and path of each page of `org` that `caller` may open."""
    return [
        (place.label, url_for(place.endpoint, slug=org.slug))
        for place in DESTINATIONS
        if may(caller, place.capability, org)
    ]


def frame(caller: Caller, org: Organisation) -> dict[str, Any]:
    """What the layout of a page of `org` needs: where it is, where it leads, and the way out."""
    return {
        "org": org,
        "navigation": navigation(caller, org),
        "may_export": may(caller, Capability.AUDIT_EXPORT, org),
        "csrf": csrf_token(services().settings.secret_key, caller.session_id)
        if isinstance(caller, SignedIn)
        else None,
    }
