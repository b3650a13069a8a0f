"""The endpoints of exports: their list, their receipts, and the files themselves.

A file is not an endpoint of the resource: it is asked for at two paths, whose audit rows differ,
and HEAD of it is refused, as it would be an export that nothing receives.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from msgspec import UNSET, Meta
from quart import Blueprint, Response, request, url_for

from analytics.evidence.receipts import RECEIPT_SUFFIX
from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.filters import only, parse_query
from analytics.model.instants import format_us
from analytics.model.rows import VerdictSource
from service.access.roles import Capability
from service.audit.evidence.keys import find_key
from service.audit.export_entries import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    ExportState,
    get_export,
    list_exports,
    state_of,
)
from service.audit.export_receipts import (
    Bound,
    Filters,
    Floor,
    Receipt,
    Sha256,
    Watermark,
    entry_file_name,
    file_name,
    receipt_of,
    receipt_text,
    renamed_fields,
)
from service.audit.exports import Export
from service.audit.refusals import (
    EXPORT_NOT_FINISHED,
    EXPORT_NOT_FOUND,
    QUERY_REFUSALS,
    TOO_MANY_EXPORTS,
    TOO_MANY_EXPORTS_OF_ALL,
    TOO_MANY_OWN_EXPORTS,
)
from service.audit.row_models import AuditEntry, OrderedWindow, with_filters
from service.audit.search import with_search
from service.audit.services import AuditServices
from service.core.errors import Forbidden, Invalid, OrgNotFound
from service.store.lost_segments import count_rows, losses_within
from service.store.tables import ExportEntry
from service.store.transaction import within
from service.web.compression import content_coding
from service.web.dependencies import group_of
from service.web.documentation import Documentation, MediaTypes, Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, NonNegative, Omittable, PageCursor, Request, TimestampUs
from service.web.refusals import INVALID_CURSOR, UNKNOWN_PARAMETER
from service.web.request_parsing import all_parameters, parse_flag, refuse_head
from service.web.responses import JSON_TYPE

END_WAIT_S: Final = 1.0
"""How long a request for a receipt waits for the end of its export."""

_END_POLL_S: Final = 0.05


resource = Resource("exports", "/exports", Tag.EXPORTS, AuditServices)


class ExportsQuery(Request):
    """Which page of exports."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMIT_MAX, description=f"Exports on a page; default {LIMIT_DEFAULT}.")
    ] = LIMIT_DEFAULT
    cursor: PageCursor | None = None


class ExportedFile(Answer):
    """One export: what was asked for, and what was sent.

    `bytes` and `sha256` are those of the file as the client saves it. `sha256` is null unless the
    export is finished.
    """

    id: Annotated[str, Meta(description="Prefix `exp_`.")]
    state: ExportState
    actor: str
    actor_source: str
    verdict_source: str
    request_id: str | None
    started_at: TimestampUs
    ended_at: TimestampUs | None
    format: ExportFormat
    compress: Compression | None
    raw: bool
    filters: Filters
    since: Bound
    until: Bound
    retention_floor: Floor
    watermark: Watermark
    rows: Annotated[int, Meta(ge=0, description="Counted before the first byte.")]
    sent_rows: NonNegative
    bytes: NonNegative
    sha256: Sha256 | None
    version: str


class ExportList(Answer):
    """Exports, newest first. `next_cursor` is null on the last page."""

    org: str
    exports: list[ExportedFile]
    next_cursor: str | None


@resource.get(
    "list_exports",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    query=ExportsQuery,
    returns=ExportList,
    refuses=[INVALID_CURSOR],
)
async def exports(call: Call[AuditServices], query: ExportsQuery) -> ExportList:
    """List the organisation's exports, a page at a time, newest first."""
    async with call.read() as session:
        entries, next_cursor = await list_exports(
            session, call.services.settings, call.org.id, query.limit, query.cursor
        )
    now = call.services.clock()
    return ExportList(
        org=call.org.slug,
        exports=[_exported_file(entry, now) for entry in entries],
        next_cursor=next_cursor,
    )


@resource.get(
    "get_export",
    "/<export_id>",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    returns=ExportedFile,
    refuses=[EXPORT_NOT_FOUND],
)
async def show_export(call: Call[AuditServices], export_id: str) -> ExportedFile:
    """One export: what was asked for, how far it is, what was sent."""
    async with call.read() as session:
        entry = await get_export(session, call.org.id, export_id)
    return _exported_file(entry, call.services.clock())


@resource.get(
    "get_export_receipt",
    "/<export_id>/receipt",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    returns=Receipt,
    refuses=[EXPORT_NOT_FOUND, EXPORT_NOT_FINISHED],
    headers={"content-disposition": "A name for the receipt, beside that of the file."},
)
async def receipt(call: Call[AuditServices], export_id: str) -> Response:
    """The receipt of a finished export, to keep beside its file."""
    entry = await _ended(call, export_id)
    async with call.read() as session:
        secret_key, key_id = call.services.settings.secret_key, entry.checkpoint_key_id
        key = None if key_id is None else await within(session, find_key, secret_key, key_id)
    made = receipt_of(entry, call.org, call.services.clock(), key)
    name = entry_file_name(call.org.slug, entry) + RECEIPT_SUFFIX
    return Response(
        receipt_text(made),
        content_type=JSON_TYPE,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


async def _ended(call: Call[AuditServices], export_id: str) -> ExportEntry:
    """The export; one that runs is given END_WAIT_S to end. Raises EXPORT_NOT_FOUND.

    Its end is recorded after the last byte, and a client that has all of the file may ask before.
    """
    ends_at = time.monotonic() + END_WAIT_S
    while True:
        async with call.read() as session:
            entry = await get_export(session, call.org.id, export_id)
        if entry.ended_at is not None or time.monotonic() >= ends_at:
            return entry
        await asyncio.sleep(_END_POLL_S)


def _exported_file(entry: ExportEntry, now: datetime) -> ExportedFile:
    """`entry` as the API shows it at `now`."""
    return ExportedFile.from_row(entry, **renamed_fields(entry), state=state_of(entry, now))


_COMPRESSED_TYPES: Final = {
    Compression.GZIP: "application/gzip",
    Compression.ZSTD: "application/zstd",
}
_OPEN: Final = ".."
"""A bound that is not there, as ISO 8601-2 writes it."""

_NO_FLOOR: Final = "none"
_FORM_PARAMETERS: Final = frozenset({"format", "compress", "raw"})
_DIGITS: Final[Mapping[str | None, str]] = {"1": "true", "0": "false"}
_Choice = TypeVar("_Choice", bound=StrEnum)

_SCHEMAS: Final[Mapping[ExportFormat, Any]] = {
    ExportFormat.CSV: str,
    ExportFormat.JSON: list[AuditEntry],
}

EXPORT_MEDIA: Final[MediaTypes] = {
    **{each.facts.media_type.partition(";")[0]: _SCHEMAS.get(each) for each in ExportFormat},
    **dict.fromkeys(_COMPRESSED_TYPES.values()),
}
"""The possible content types of an export and their schemas, for the OpenAPI document."""

EXPORT_HEADERS: Final = {
    "content-disposition": "A name for the file.",
    "x-export-id": "The id of the export, which its receipt can be requested with.",
    "x-export-window": (
        "The bounds that applied, the retention floor included: `since/until`, `..` for none."
    ),
    "x-retention-floor": "No row before it is in the file; `none` without a limit.",
    "x-row-count": "The number of rows in the file.",
    "x-lost-rows": "How many rows of the days in the window were given up as lost; 0 for none.",
    "link": "The receipt, which exists once the export has finished (`rel=describedby`).",
    "vary": "`accept-encoding`: the file may be compressed in transit.",
}


blueprint = Blueprint("audit_export", __name__)


@with_filters
class ExportQuery(OrderedWindow, kw_only=True):
    """Which rows, and the format of the file."""

    format: Annotated[ExportFormat, Meta(description="The file's format.")]
    compress: Omittable[
        Annotated[
            Compression,
            Meta(description="Compress the file itself; Parquet is compressed already."),
        ]
    ] = UNSET
    raw: Omittable[
        Annotated[
            bool,
            Meta(
                description="`true` leaves CSV values unchanged: no protection against formulas."
                " `1` and `0` are accepted, too."
            ),
        ]
    ] = UNSET


EXPORT_REFUSALS: Final = (TOO_MANY_EXPORTS, TOO_MANY_OWN_EXPORTS, TOO_MANY_EXPORTS_OF_ALL)

_documented_export = partial(
    Documentation,
    tag=Tag.EXPORTS,
    answers={200: EXPORT_MEDIA},
    querystring=ExportQuery,
    refusals=[
        Invalid,
        UNKNOWN_PARAMETER,
        Forbidden,
        OrgNotFound,
        *QUERY_REFUSALS,
        *EXPORT_REFUSALS,
    ],
    headers=EXPORT_HEADERS,
)


@blueprint.get("/api/v1/admin/orgs/<slug>/audit/export")
@_documented_export("export_audit_log")
async def export(slug: str) -> Response:
    """Export all rows of a query as one file; a broken connection means an incomplete file."""
    return await _answer(group_of(AuditServices), slug, VerdictSource.ADMIN_API)


@blueprint.get("/admin/ui/orgs/<slug>/audit/export")
@_documented_export("export_audit_log_from_page", credentials=("adminToken", "session"))
async def dashboard_export(slug: str) -> Response:
    """Export all rows of a query from the audit page: the same file, recorded as such."""
    return await _answer(group_of(AuditServices), slug, VerdictSource.DASHBOARD)


async def _answer(services: AuditServices, slug: str, origin: VerdictSource) -> Response:
    """The requested file; its audit row is durable before this returns."""
    refuse_head(request)
    caller, org = await services.access.authorize(slug, Capability.AUDIT_EXPORT, origin)
    parameters = await with_search(services, org, caller, all_parameters(request))
    encoding = _file_encoding(parameters)
    query = parse_query(
        {name: values for name, values in parameters.items() if name not in _FORM_PARAMETERS}
    )
    now = services.clock()
    begun = await services.exporter.prepare(org, query, encoding, caller.audit_context, now)
    return await file_response(services, slug, begun)


async def file_response(services: AuditServices, slug: str, begun: Export) -> Response:
    """The file of an export that is recorded."""
    encoding, org = begun.encoding, begun.log.org
    name = file_name(slug, begun.started_at, encoding.format, encoding.compression)
    floor = begun.log.floor
    losses = await losses_within(services.store, org.id, *begun.window)
    receipt = url_for("exports.receipt", slug=slug, export_id=begun.export_id)
    response = Response(
        await services.exporter.stream(begun),
        content_type=encoding.format.facts.media_type
        if encoding.compression is None
        else _COMPRESSED_TYPES[encoding.compression],
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "x-export-id": begun.export_id,
            "x-export-window": export_window(begun),
            "x-retention-floor": _NO_FLOOR if floor is None else format_us(floor),
            "x-row-count": str(begun.rows),
            "x-lost-rows": str(count_rows(losses)),
            "link": f'<{receipt}>; rel="describedby"; type="{JSON_TYPE}"',
            "vary": "accept-encoding",
        },
    )
    if encoding.coding is not None:
        response.headers["content-encoding"] = encoding.coding
    # Replaces Quart's limit of one minute. Also ends transfers to stalled readers, which the
    # exporter does not notice.
    response.timeout = services.settings.export_max_s
    return response


def export_window(begun: Export) -> str:
    """The bounds that apply, the retention floor included, as `since/until`; `..` is none."""
    return "/".join(_OPEN if at is None else format_us(at) for at in begun.window)


def _file_encoding(parameters: Mapping[str, Sequence[str]]) -> FileEncoding:
    export_format = _choice("format", only(parameters, "format"), ExportFormat)
    compress, raw = only(parameters, "compress"), only(parameters, "raw")
    compression = None if compress is None else _choice("compress", compress, Compression)
    is_text = export_format.facts.is_text
    if not is_text and compression is not None:
        raise Invalid(
            f"compress does not go with {export_format}, which is compressed already",
            field="compress",
        )
    return FileEncoding(
        format=export_format,
        compression=compression,
        coding=content_coding(request) if is_text and compression is None else None,
        is_raw=parse_flag("raw", _DIGITS.get(raw, raw)) or False,
    )


def _choice(name: str, text: str | None, choices: type[_Choice]) -> _Choice:
    if text not in set(choices):
        raise Invalid(f"{name} must be one of {', '.join(choices)}", field=name)
    return choices(text)
