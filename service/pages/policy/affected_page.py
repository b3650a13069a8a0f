"""The pages of past installs that advisories, rules and withdrawals affect: all, and one."""

from typing import cast

import msgspec
from quart import Blueprint

from analytics.model.filters import VALUES_MAX, Query, among, parse_query
from analytics.model.policy_envelopes import InstallsMatched
from service.access.roles import Capability
from service.audit.query_service import LIMIT_DEFAULT, PageRequest
from service.audit.tenant_log import open_log
from service.packages.retro.affected import EVENTS
from service.packages.retro.affected_api import ROWS_MAX, AffectedInstalls, show
from service.pages.page import Page, PageCall, View
from service.pages.rows import decoded_entries, load_log_rows
from service.pages.state import PageState
from service.pages.summary_panel import of_log
from service.web.endpoint import Call

blueprint = Blueprint("dashboard_affected", __name__, url_prefix="/admin/ui/orgs/<slug>/affected")


@Page(blueprint, "", "policy/affected.html", needs=Capability.AUDIT_READ)
async def affected_page(call: PageCall) -> View:
    """The newest matches, each with its packages."""
    matches = Query(conditions=(among("event", [InstallsMatched.event]),))
    wanted = PageRequest(matches, LIMIT_DEFAULT, None)
    shown = await call.services.audit.queries.page(call.org, wanted, call.services.clock())
    return {"matches": decoded_entries(shown.entries), "event": InstallsMatched.event}


@Page(blueprint, "/<path:rule_id>", "policy/affected_by.html", needs=Capability.AUDIT_READ)
async def affected_by_page(call: PageCall, rule_id: str) -> View:
    """Who installed what one advisory, rule or withdrawal is about, and which files are cached."""
    services, org, now = call.services, call.org, call.services.clock()
    asked = Call(services.audit, call.caller, org)
    found = cast("AffectedInstalls", await show(asked, rule_id))
    texts = [msgspec.json.encode(entry).decode() for entry in found.entries]
    return {
        "rule_id": rule_id,
        "found": found,
        "rows": await load_log_rows(services, org, texts, of_log(org.slug), now),
        "rows_max": ROWS_MAX,
        "all": await _all(call, found),
    }


async def _all(call: PageCall, found: AffectedInstalls) -> PageState | None:
    """All rows of the files; None if filters cannot select exactly these."""
    named = {
        "event": EVENTS,
        "ecosystem": [file.ecosystem for file in found.files],
        "package": [file.package for file in found.files],
        "version": [file.version or "" for file in found.files],
    }
    state = of_log(call.org.slug)
    for name, values in named.items():
        state = state.only(name, *dict.fromkeys(values))
    has_room = sum(map(len, state.filters.values())) <= VALUES_MAX
    if len(found.affected) != 1 or not has_room or "" in named["version"]:
        return None
    services, now = call.services, call.services.clock()
    log = await open_log(services.store, services.audit.lake, call.org, now)
    rows = await log.count(parse_query(state.filters), services.settings.query_max_s)
    return state if rows == found.affected[0].installs else None
