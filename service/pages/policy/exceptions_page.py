"""The pages about exceptions from the cooldown: asking for one, and deciding on them."""

from typing import Final

from quart import Blueprint

from service.access.roles import Capability
from service.orgs.members import list_owners
from service.packages.policy.exceptions import OPEN, ask, decide, list_exceptions
from service.pages.display_names import find_names
from service.pages.navigation import may
from service.pages.page import Page, PageCall, View
from service.pages.policy.policy_page import CHOICES

LISTED_MAX: Final = 250
_OWNERS_MAX: Final = 3
_OWN_MAX: Final = 20

blueprint = Blueprint(
    "dashboard_exceptions", __name__, url_prefix="/admin/ui/orgs/<slug>/policy/exceptions"
)

DONE: Final = {
    "asked": "Your request is recorded. An owner will review it.",
    "allowed": "Allowed: the policy has a rule for this release now.",
    "declined": "Declined: the policy is unchanged.",
}


@Page(
    blueprint,
    "",
    "policy/exceptions.html",
    needs=Capability.POLICY_READ,
    done=DONE,
)
async def exceptions_page(call: PageCall) -> View:
    """The requests that wait, oldest first, and the latest that were decided."""
    async with call.read() as session:
        waiting = await list_exceptions(session, call.org.id, OPEN, LISTED_MAX)
        listed = await list_exceptions(session, call.org.id, None, LISTED_MAX)
        actors = {
            actor
            for request in [*waiting, *listed]
            for actor in (request.requested_by, request.decided_by)
            if actor is not None
        }
        names = await find_names(session, call.org.id, actors=actors)
    return {
        "waiting": list(reversed(waiting)),
        "decided": [request for request in listed if request.state != OPEN],
        "people": {actor: names.person(actor) for actor in actors},
        "may_decide": may(call.caller, Capability.POLICY_WRITE, call.org),
    }


@Page(
    blueprint,
    "/new",
    "policy/exception_new.html",
    needs=None,
    done=DONE,
    takes=("ecosystem", "package", "version"),
)
async def new_exception(call: PageCall) -> View:
    """Some owners who could allow an exception, and what the caller asked for before."""
    by = call.by.actor
    async with call.read() as session:
        owners = await list_owners(session, call.org, _OWNERS_MAX)
        own = await list_exceptions(session, call.org.id, None, _OWN_MAX, requested_by=by)
    return {"owners": [owner.email for owner in owners], "ecosystems": CHOICES, "own": own}


exceptions_page.form(
    "/<exception_id>/decide",
    "decide_form",
    decide,
    lambda decided: decided.state,
    field="reason",
)
new_exception.form("/new", "ask_exception", ask, "asked", then=exceptions_page)
