"""The endpoint of the access report."""

from collections.abc import Callable
from typing import Final, TypeVar

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.roles import Capability
from service.audit.services import AuditServices
from service.core.errors import ORG_REFUSALS, QUERY_REFUSALS, Invalid
from service.core.threads import in_thread
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_forms import (
    AccessQuery,
    AccessReportForm,
    report_csv,
    report_json,
)
from service.trust.reports.access_report import AccessReport, report_access
from service.web.dependencies import receives
from service.web.documentation import Tag, documented
from service.web.request_parsing import query_parameters
from service.web.responses import JSON_TYPE

blueprint = Blueprint("reports", __name__)

_FORMATS: Final = ("json", "csv")
_Written = TypeVar("_Written", bytes, str)


@blueprint.get("/api/v1/admin/orgs/<slug>/access-report")
@documented(
    "get_access_report",
    Tag.REPORTS,
    answers={200: {JSON_TYPE: AccessReportForm, "text/csv": str}},
    querystring=AccessQuery,
    refusals=[Invalid, *ORG_REFUSALS, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def access_report(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Who could do what, as of a date: members, roles, team admins, API keys and bindings."""
    _, org = await services.access.authorize(slug, Capability.AUDIT_READ)
    parameters = query_parameters(request, ("asOf", "format"))
    form = only(parameters, "format") or "json"
    if form not in _FORMATS:
        raise Invalid(f"format must be one of {', '.join(_FORMATS)}", field="format")
    as_of = parse_as_of(only(parameters, "asOf"))
    report = await report_access(services.store, services.lake, org, as_of, services.clock())
    # In threads: an organisation may have tens of thousands of members, keys and bindings.
    if form == "json":
        body = await in_thread(_emptied, report_json, report)
        return Response(body, content_type=JSON_TYPE)
    name = f"{slug}-access-{report.as_of:%Y%m%dT%H%M%SZ}.csv"
    return Response(
        await in_thread(_emptied, report_csv, report),
        content_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _emptied(write: Callable[[AccessReport], _Written], report: AccessReport) -> _Written:
    """What `write` returns; the report has no entries then.

    The event loop would free tens of thousands of them at once.
    """
    written = write(report)
    for entries in (report.members, report.teams, report.api_keys, report.bindings):
        entries.clear()
    return written
