"""The audit endpoints: pages, summaries, single rows and exports."""

from functools import partial

from msgspec import Raw
from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import parse_query
from analytics.model.rows import VerdictSource
from service.access.roles import Capability
from service.audit.api_schemas import (
    AcceptedQuery,
    AcceptedRows,
    AuditEntry,
    AuditGroups,
    AuditPage,
    AuditSummary,
    ExportQuery,
    GroupsQuery,
    PageQuery,
    SummaryQuery,
    UnknownValues,
    ValuesQuery,
)
from service.audit.export_response import EXPORT_HEADERS, EXPORT_MEDIA, answer_export
from service.audit.grouping import group_audit, parse_group_request
from service.audit.query_service import (
    accepted_form,
    page_form,
    parse_accepted_request,
    parse_page_request,
)
from service.audit.search_request import with_search
from service.audit.services import AuditServices
from service.audit.summaries import parse_summary_request, summarise_audit
from service.audit.tenant_log import open_log
from service.audit.unknown_values import unknown_values
from service.core.errors import (
    ORG_REFUSALS,
    QUERY_REFUSALS,
    AuditRowNotFound,
    Invalid,
    InvalidCursor,
    TooManyExports,
    TooManyExportsOfAll,
    TooManyOwnExports,
)
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.documentation import Tag, documented
from service.web.request_parsing import all_parameters, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("audit", __name__)

_AUDIT = "/api/v1/admin/orgs/<slug>/audit"


@blueprint.get(_AUDIT)
@documented(
    "query_audit_log",
    Tag.AUDIT,
    answers={200: AuditPage},
    querystring=PageQuery,
    refusals=[Invalid, *ORG_REFUSALS, InvalidCursor, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def page(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Query the organisation's audit log, a page at a time, newest first."""
    org, parameters = await _authorized_query(services, slug)
    wanted = parse_page_request(parameters)
    return json_answer(page_form(slug, await services.queries.page(org, wanted, services.clock())))


@blueprint.get(f"{_AUDIT}/summary")
@documented(
    "summarise_audit_log",
    Tag.AUDIT,
    answers={200: AuditSummary},
    querystring=SummaryQuery,
    refusals=[Invalid, *ORG_REFUSALS, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def summary(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Count the organisation's audit rows over time, and name the most frequent values."""
    org, parameters = await _authorized_query(services, slug)
    wanted = parse_summary_request(parameters)
    return json_answer(
        await summarise_audit(services.store, services.lake, org, wanted, services.clock())
    )


@blueprint.get(f"{_AUDIT}/groups")
@documented(
    "group_audit_rows",
    Tag.AUDIT,
    answers={200: AuditGroups},
    querystring=GroupsQuery,
    refusals=[Invalid, *ORG_REFUSALS, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def groups(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Count the rows of a query by equal values, with the first and last time of each group."""
    org, parameters = await _authorized_query(services, slug)
    wanted = parse_group_request(parameters)
    log = await open_log(services.store, services.lake, org, services.clock())
    return json_answer(await group_audit(log, wanted, services.settings.query_max_s))


@blueprint.get(f"{_AUDIT}/unknown-values")
@documented(
    "find_unknown_values",
    Tag.AUDIT,
    answers={200: UnknownValues},
    querystring=ValuesQuery,
    refusals=[Invalid, *ORG_REFUSALS, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def unknown(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Which values of a query no row of the organisation has, at any time it may see."""
    org, parameters = await _authorized_query(services, slug)
    query = parse_query(parameters, has_order=False)
    log = await open_log(services.store, services.lake, org, services.clock())
    return json_answer({"org": slug, "unknown": await unknown_values(log, query)})


@blueprint.get(f"{_AUDIT}/accepted")
@documented(
    "follow_audit_log",
    Tag.AUDIT,
    answers={200: AcceptedRows},
    querystring=AcceptedQuery,
    refusals=[Invalid, *ORG_REFUSALS, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def accepted(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Follow the organisation's audit log: the rows accepted after a given one, oldest first."""
    # Such requests are repeated automatically: they must not keep an unused session alive.
    org, parameters = await _authorized_query(services, slug, keeps_alive=False)
    wanted = parse_accepted_request(parameters)
    result = await services.queries.accepted(org, wanted, services.clock())
    return json_answer(accepted_form(slug, result))


@blueprint.get(f"{_AUDIT}/<row:audit_id>")
@documented(
    "get_audit_row",
    Tag.AUDIT,
    answers={200: AuditEntry},
    refusals=[*ORG_REFUSALS, AuditRowNotFound, *QUERY_REFUSALS],
)
@receives(AuditServices)
async def entry(services: AuditServices, slug: str, audit_id: str) -> ResponseReturnValue:
    """One audit row by its id."""
    _, org = await services.access.authorize(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    return json_answer(Raw(await services.queries.entry(org, audit_id, services.clock())))


_documented_export = partial(
    documented,
    tag=Tag.EXPORTS,
    answers={200: EXPORT_MEDIA},
    querystring=ExportQuery,
    refusals=[
        Invalid,
        *ORG_REFUSALS,
        *QUERY_REFUSALS,
        TooManyExports,
        TooManyOwnExports,
        TooManyExportsOfAll,
    ],
    headers=EXPORT_HEADERS,
)


@blueprint.get(f"{_AUDIT}/export")
@_documented_export("export_audit_log")
@receives(AuditServices)
async def export(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Export all rows of a query as one file; a broken connection means an incomplete file."""
    return await answer_export(services, slug, VerdictSource.ADMIN_API)


@blueprint.get("/admin/ui/orgs/<slug>/audit/export")
@_documented_export("export_audit_log_from_page", credentials=("adminToken", "session"))
@receives(AuditServices)
async def dashboard_export(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Export all rows of a query from the audit page: the same file, recorded as such."""
    return await answer_export(services, slug, VerdictSource.DASHBOARD)


async def _authorized_query(
    services: AuditServices, slug: str, *, keeps_alive: bool = True
) -> tuple[Organisation, dict[str, list[str]]]:
    """The organisation, whose log the caller may read, and the query, its search as filters.

    Raises InvalidQuery, and what `Authorizer.authorize` raises, before the query is read.
    """
    _, org = await services.access.authorize(slug, Capability.AUDIT_READ, keeps_alive=keeps_alive)
    return org, await with_search(services.store, org, all_parameters(request))
