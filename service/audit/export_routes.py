"""The endpoints that list exports and hand out their receipts."""

import asyncio
import time
from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from analytics.model.rows import VerdictSource
from service.access.authorization import Authorizer
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.export_entries import LIMIT_DEFAULT, LIMIT_MAX, get_export, list_exports
from service.audit.export_forms import (
    RECEIPT_SUFFIX,
    ExportedFile,
    ExportList,
    ExportsQuery,
    Receipt,
    entry_file_name,
    export_form,
    list_form,
    receipt_of,
    receipt_text,
)
from service.audit.services import AuditServices
from service.core.errors import (
    ORG_REFUSALS,
    ExportNotFinished,
    ExportNotFound,
    Invalid,
    InvalidCursor,
)
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.documentation import Tag, documented
from service.web.request_parsing import parse_limit, query_parameters
from service.web.responses import JSON_TYPE, json_answer

blueprint = Blueprint("exports", __name__)

END_WAIT_S: Final = 1.0
"""How long a request for a receipt waits for the end of its export."""

_END_POLL_S: Final = 0.05

_EXPORTS = "/api/v1/admin/orgs/<slug>/exports"
_RECEIPT_HEADERS = {"content-disposition": "A name for the receipt, beside that of the file."}


async def authorize_exports(
    access: Authorizer,
    slug: str,
    origin: VerdictSource = VerdictSource.ADMIN_API,
    *,
    keeps_alive: bool = True,
) -> tuple[Caller, Organisation]:
    """The caller and the organisation, if they may read the log or make exports.

    Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order.
    """
    return await access.authorize(
        slug,
        Capability.AUDIT_READ,
        origin,
        alternative=Capability.AUDIT_EXPORT,
        keeps_alive=keeps_alive,
    )


@blueprint.get(_EXPORTS)
@documented(
    "list_exports",
    Tag.EXPORTS,
    answers={200: ExportList},
    querystring=ExportsQuery,
    refusals=[Invalid, *ORG_REFUSALS, InvalidCursor],
)
@receives(AuditServices)
async def exports(services: AuditServices, slug: str) -> ResponseReturnValue:
    """List the organisation's exports, a page at a time, newest first."""
    _, org = await authorize_exports(services.access, slug)
    parameters = query_parameters(request, ("limit", "cursor"))
    limit = parse_limit(only(parameters, "limit"), LIMIT_DEFAULT, LIMIT_MAX)
    async with services.store.read() as session:
        page = await list_exports(session, org.id, limit, only(parameters, "cursor"))
    return json_answer(list_form(slug, page.entries, page.next_cursor, services.clock()))


@blueprint.get(f"{_EXPORTS}/<export_id>")
@documented(
    "get_export",
    Tag.EXPORTS,
    answers={200: ExportedFile},
    refusals=[*ORG_REFUSALS, ExportNotFound],
)
@receives(AuditServices)
async def one_export(services: AuditServices, slug: str, export_id: str) -> ResponseReturnValue:
    """One export: what was asked for, how far it is, what was sent."""
    _, org = await authorize_exports(services.access, slug)
    query_parameters(request, ())
    async with services.store.read() as session:
        entry = await get_export(session, org.id, export_id)
    return json_answer(export_form(entry, services.clock()))


@blueprint.get(f"{_EXPORTS}/<export_id>/receipt")
@documented(
    "get_export_receipt",
    Tag.EXPORTS,
    answers={200: Receipt},
    refusals=[*ORG_REFUSALS, ExportNotFound, ExportNotFinished],
    headers=_RECEIPT_HEADERS,
)
@receives(AuditServices)
async def receipt(services: AuditServices, slug: str, export_id: str) -> ResponseReturnValue:
    """The receipt of a finished export, to keep beside its file."""
    _, org = await authorize_exports(services.access, slug)
    query_parameters(request, ())
    return await answer_receipt(services, org, export_id)


async def answer_receipt(services: AuditServices, org: Organisation, export_id: str) -> Response:
    """The receipt as a file. Raises ExportNotFound, ExportNotFinished.

    Waits for the end of a running export for END_WAIT_S: it is recorded after the last byte, and a
    client that has all of the file may ask before that.
    """
    ends_at = time.monotonic() + END_WAIT_S
    while True:
        async with services.store.read() as session:
            entry = await get_export(session, org.id, export_id)
        if entry.ended_at is not None or time.monotonic() >= ends_at:
            break
        await asyncio.sleep(_END_POLL_S)
    made = receipt_of(entry, org, services.clock())
    name = entry_file_name(org.slug, entry) + RECEIPT_SUFFIX
    return Response(
        receipt_text(made),
        content_type=JSON_TYPE,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
