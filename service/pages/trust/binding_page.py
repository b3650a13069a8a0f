"""The page of one binding: its details, its history, and the form that revokes it."""

import json
from datetime import timedelta
from typing import Final

from quart import Blueprint

from analytics.export.wire import json_objects
from analytics.model.envelopes import OidcBindingCreated, OidcBindingRevoked
from analytics.model.filters import parse_query
from analytics.model.instants import format_us
from analytics.model.labels import event_label
from service.access.roles import Capability
from service.audit.tenant_log import open_log
from service.core.errors import Conflict
from service.pages.display_names import NamedActor
from service.pages.navigation import may
from service.pages.page import FormState, Page, PageCall, View
from service.pages.services import DashboardServices
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.pages.trust.binding_view import ShownBinding, may_create, may_revoke, show_bindings
from service.store.tables import Organisation
from service.trust.bindings.bindings_api import revoke
from service.trust.bindings.repository import get_binding
from service.trust.refusals import BindingNotFound

blueprint = Blueprint("dashboard_binding", __name__, url_prefix="/admin/ui/orgs/<slug>/bindings")

_CHANGES: Final = (OidcBindingCreated.event, OidcBindingRevoked.event)
_A_MOMENT: Final = timedelta(seconds=1)


@Page(
    blueprint,
    "/<binding:binding_id>",
    "binding.html",
    needs=Capability.OIDC_READ,
    done={
        "created": "The binding is active: from now on tokens of this job are trusted.",
        "replaced": "The binding is active and has replaced the other one in the same instant.",
        "revoked": "The binding is revoked: from now on it matches no token.",
    },
    reads_form=True,
)
async def binding_page(call: PageCall, state: FormState, binding_id: str) -> View:
    """One binding and its history. Raises NO_SUCH_BINDING."""
    services, caller, org = call.services, call.caller, call.org
    async with call.read() as session:
        binding = await get_binding(session, org.id, binding_id)
        (shown,) = await show_bindings(session, org.id, [binding], services.clock())
    is_reader = may(caller, Capability.AUDIT_READ, org)
    is_revocable = shown.is_active and may_revoke(caller, org, binding.team_id)
    is_late = isinstance(state.refusal, BindingNotFound)
    view = {
        "shown": shown,
        # None if the caller may not, or could not, read them.
        "changes": await _changes(services, org, shown) if is_reader else None,
        "may_revoke": is_revocable,
        "may_replace": is_revocable and may_create(caller, org, binding.team_id),
        "is_already_revoked": is_late,
    }
    return {"page": view, "status": Conflict.status if is_late else state.status}


binding_page.form(
    "/<binding:binding_id>/revoke",
    "revoke",
    revoke,
    "revoked",
    fields=lambda form: {"reason": form.get("reason", "")},
)


async def _changes(
    services: DashboardServices, org: Organisation, shown: ShownBinding
) -> list[View] | None:
    """The audit rows of the binding's creation and revocation within retention, newest first.

    None if they cannot be read: the binding is shown without them.
    """
    binding = shown.binding
    last_at = binding.revoked_at or binding.added_at
    query = parse_query(
        {
            "subject": [binding.id],
            "event": _CHANGES,
            "since": [format_us(binding.added_at)],
            "until": [format_us(last_at + _A_MOMENT)],
        }
    )
    log = await open_log(services.store, services.audit.lake, org, services.clock())
    rows = await or_unavailable(log.page(query, len(_CHANGES), time_max_s=GLANCE_MAX_S))
    if isinstance(rows, SummaryUnavailable):
        return None
    people = {person.actor: person for person in (shown.added_by, shown.revoked_by) if person}
    return [
        {
            "at": entry["created_at"],
            "event": event_label(entry["event"]),
            "by": people.get(entry["actor"], NamedActor(entry["actor"], entry["actor"])),
            "surface": entry["verdict_source"],
            "request_id": entry["request_id"],
        }
        for entry in map(json.loads, json_objects(rows, org.id))
    ]
