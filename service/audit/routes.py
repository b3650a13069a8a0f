"""The audit API: pages, summaries, single rows and exports."""

from msgspec import Raw
from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue
from werkzeug.exceptions import MethodNotAllowed

from analytics.filters import only
from analytics.formats import ExportFormat
from analytics.instants import format_us
from analytics.rows import VerdictSource
from service.access.admission import admit
from service.access.capabilities import Capability
from service.audit.forms import (
    AuditEntry,
    AuditPage,
    AuditSummary,
    ExportQuery,
    PageQuery,
    SummaryQuery,
)
from service.audit.pages import parse_filters, parse_page_request
from service.audit.summaries import parse_summary_request, summarise_audit
from service.errors import (
    AuditRowNotFound,
    Forbidden,
    Invalid,
    InvalidCursor,
    OrgNotFound,
    QueryTooSlow,
    UnknownParameter,
)
from service.services import services
from service.web.answers import JSON_TYPE, json_answer
from service.web.inputs import all_parameters, query_parameters
from service.web.openapi import documented

blueprint = Blueprint("audit", __name__)

_AUDIT = "/api/v1/admin/orgs/<slug>/audit"
_CONTENT_TYPES = {ExportFormat.CSV: "text/csv; charset=utf-8", ExportFormat.JSON: JSON_TYPE}


@blueprint.get(_AUDIT)
@documented(
    answers={200: AuditPage},
    querystring=PageQuery,
    refusals=[Invalid, UnknownParameter, InvalidCursor, Forbidden, OrgNotFound, QueryTooSlow],
)
async def page(slug: str) -> ResponseReturnValue:
    """Query the organisation's audit log, a page at a time, newest first."""
    here = services()
    _, org = await admit(slug, Capability.AUDIT_READ)
    wanted = parse_page_request(all_parameters(request))
    found = await here.audit_log.page(org, wanted, here.clock())
    floor = found.retention_floor
    return json_answer(
        {
            "org": slug,
            "entries": [Raw(entry) for entry in found.entries],
            "next_cursor": found.next_cursor,
            "retention_floor": None if floor is None else format_us(floor),
        }
    )


@blueprint.get(f"{_AUDIT}/summary")
@documented(
    answers={200: AuditSummary},
    querystring=SummaryQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound, QueryTooSlow],
)
async def summary(slug: str) -> ResponseReturnValue:
    """Count the organisation's audit rows over time, and name the most frequent values."""
    here = services()
    _, org = await admit(slug, Capability.AUDIT_READ)
    wanted = parse_summary_request(all_parameters(request))
    return json_answer(await summarise_audit(here.store, here.lake, org, wanted, here.clock()))


@blueprint.get(f"{_AUDIT}/<row:audit_id>")
@documented(
    answers={200: AuditEntry},
    refusals=[UnknownParameter, Forbidden, OrgNotFound, AuditRowNotFound, QueryTooSlow],
)
async def entry(slug: str, audit_id: str) -> ResponseReturnValue:
    """One audit row by its id."""
    here = services()
    _, org = await admit(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    return json_answer(Raw(await here.audit_log.entry(org, audit_id, here.clock())))


@blueprint.get("/admin/ui/orgs/<slug>/audit/export")
@documented(
    media={"text/csv": str, JSON_TYPE: list[AuditEntry]},
    querystring=ExportQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound],
    headers={
        "content-disposition": "A name for the file.",
        "x-row-count": "How many rows the file holds.",
    },
)
async def export(slug: str) -> ResponseReturnValue:
    """Take all rows of a query away as one file; a broken connection means a broken file."""
    if request.method == "HEAD":
        # It would leave a row about an export that nobody received.
        raise MethodNotAllowed(valid_methods=["GET"])
    here = services()
    caller, org = await admit(slug, Capability.AUDIT_EXPORT, VerdictSource.DASHBOARD)
    parameters = all_parameters(request)
    export_format = _format(only(parameters, "format"))
    is_raw = _flag("raw", only(parameters, "raw"))
    query = parse_filters(
        {name: values for name, values in parameters.items() if name not in {"format", "raw"}}
    )
    now = here.clock()
    begun = await here.exporter.begin(org, query, export_format, caller.stamp, now, is_raw=is_raw)
    response = Response(
        await here.exporter.start(begun),
        content_type=_CONTENT_TYPES[export_format],
        headers={
            "content-disposition": (
                f'attachment; filename="{slug}-audit-{now:%Y%m%dT%H%M%SZ}.{export_format}"'
            ),
            "x-row-count": str(begun.rows),
        },
    )
    # Quart's own limit is a minute. This one also cuts readers who stall, whom the exporter
    # does not see.
    response.timeout = here.settings.export_max_s
    return response


def _format(text: str | None) -> ExportFormat:
    if text not in set(ExportFormat):
        raise Invalid(f"format must be one of {', '.join(ExportFormat)}")
    return ExportFormat(text)


def _flag(name: str, text: str | None) -> bool:
    if text not in {None, "0", "1"}:
        raise Invalid(f"{name} must be 0 or 1")
    return text == "1"
