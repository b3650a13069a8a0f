"""The pages: where a person looks at the audit log."""

import json
from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, render_template, request
from quart.typing import ResponseReturnValue

from analytics.rows import VerdictSource
from service.access.admission import admit
from service.access.callers import SignedIn
from service.access.capabilities import Capability
from service.access.csrf import csrf_token
from service.audit.pages import PAGE_PARAMETERS, parse_page_request
from service.services import services
from service.web.inputs import all_parameters

blueprint = Blueprint("dashboard", __name__)

FILTER_FIELDS: Final = ("since", "until", "event", "package", "decision", "actor", "subject")
"""The filters the page shows, in its order."""


@blueprint.app_template_filter("pretty_json")
def pretty_json(value: object, indent: int | None = 2) -> str:
    """`value` as JSON for a person to read: plain text, which the template escapes as it needs."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


@blueprint.get("/")
async def home() -> ResponseReturnValue:
    """Say what this is, to whoever comes without a link."""
    return await render_template("home.html")


@blueprint.get("/admin/ui/orgs/<slug>/audit")
async def audit_page(slug: str) -> ResponseReturnValue:
    """Show the organisation's audit log, filtered, newest first."""
    here = services()
    caller, org = await admit(slug, Capability.AUDIT_READ, VerdictSource.DASHBOARD)
    # A form sends its empty fields, too; on this page they mean "not filtered".
    given = {
        name: kept
        for name, values in all_parameters(request).items()
        if (kept := [value for value in values if value])
    }
    found = await here.audit_log.page(org, parse_page_request(given), here.clock())
    filters = {name: values for name, values in given.items() if name not in PAGE_PARAMETERS}
    return await render_template(
        "audit.html",
        org=org,
        entries=[json.loads(entry) for entry in found.entries],
        fields=FILTER_FIELDS,
        filters=filters,
        given={name: values[0] for name, values in filters.items()},
        export_query=urlencode(filters, doseq=True),
        next_query=urlencode(given | {"cursor": found.next_cursor}, doseq=True)
        if found.next_cursor
        else None,
        is_first_page="cursor" not in given,
        retention_floor=found.retention_floor,
        csrf=csrf_token(here.settings.secret_key, caller.session_id)
        if isinstance(caller, SignedIn)
        else None,
    )
