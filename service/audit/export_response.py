"""The endpoints of an export: its parameters, headers and file."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from msgspec import UNSET, Meta
from quart import Blueprint, Request, Response, request, url_for

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileForm
from analytics.model.filters import only, parse_query
from analytics.model.instants import format_us
from analytics.model.rows import VerdictSource
from service.access.roles import Capability
from service.audit.export_api import file_name
from service.audit.exports import Export
from service.audit.query_api import (
    AuditEntry,
    OrderedWindow,
    with_filters,
)
from service.audit.search_request import with_search
from service.audit.services import AuditServices
from service.core.errors import (
    ORG_REFUSALS,
    QUERY_REFUSALS,
    Invalid,
    TooManyExports,
    TooManyExportsOfAll,
    TooManyOwnExports,
)
from service.store.lost_segments import count_rows, losses_within
from service.web.content_negotiation import content_coding
from service.web.dependencies import receives
from service.web.documentation import MediaTypes, Tag, documented
from service.web.parameter_types import Omittable
from service.web.request_parsing import all_parameters, parse_flag, refuse_head
from service.web.responses import JSON_TYPE

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


@blueprint.get("/api/v1/admin/orgs/<slug>/audit/export")
@_documented_export("export_audit_log")
@receives(AuditServices)
async def export(services: AuditServices, slug: str) -> Response:
    """Export all rows of a query as one file; a broken connection means an incomplete file."""
    return await _answer(services, slug, VerdictSource.ADMIN_API)


@blueprint.get("/admin/ui/orgs/<slug>/audit/export")
@_documented_export("export_audit_log_from_page", credentials=("adminToken", "session"))
@receives(AuditServices)
async def dashboard_export(services: AuditServices, slug: str) -> Response:
    """Export all rows of a query from the audit page: the same file, recorded as such."""
    return await _answer(services, slug, VerdictSource.DASHBOARD)


async def _answer(services: AuditServices, slug: str, origin: VerdictSource) -> Response:
    """The requested file; its audit row is durable before this returns."""
    refuse_head(request)
    caller, org = await services.access.authorize(slug, Capability.AUDIT_EXPORT, origin)
    parameters = await with_search(services.store, org, all_parameters(request))
    form = _file_form(request, parameters)
    query = parse_query(
        {name: values for name, values in parameters.items() if name not in _FORM_PARAMETERS}
    )
    now = services.clock()
    begun = await services.exporter.prepare(org, query, form, caller.audit_context, now)
    name = file_name(slug, begun.started_at, form.format, form.compression)
    floor = begun.log.floor
    losses = await losses_within(services.store, org.id, *begun.window)
    receipt = url_for("exports.receipt", slug=slug, export_id=begun.export_id)
    response = Response(
        await services.exporter.stream(begun),
        content_type=form.format.facts.media_type
        if form.compression is None
        else _COMPRESSED_TYPES[form.compression],
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
    if form.coding is not None:
        response.headers["content-encoding"] = form.coding
    # Replaces Quart's limit of one minute. Also ends transfers to stalled readers, which the
    # exporter does not notice.
    response.timeout = services.settings.export_max_s
    return response


def export_window(begun: Export) -> str:
    """The bounds that apply, the retention floor included, as `since/until`; `..` is none."""
    return "/".join(_OPEN if at is None else format_us(at) for at in begun.window)


def _file_form(request: Request, parameters: Mapping[str, Sequence[str]]) -> FileForm:
    export_format = _choice("format", only(parameters, "format"), ExportFormat)
    compress, raw = only(parameters, "compress"), only(parameters, "raw")
    compression = None if compress is None else _choice("compress", compress, Compression)
    is_text = export_format.facts.is_text
    if not is_text and compression is not None:
        raise Invalid(
            f"compress does not go with {export_format}, which is compressed already",
            field="compress",
        )
    return FileForm(
        format=export_format,
        compression=compression,
        coding=content_coding(request) if is_text and compression is None else None,
        is_raw=parse_flag("raw", _DIGITS.get(raw, raw)) or False,
    )


def _choice(name: str, text: str | None, choices: type[_Choice]) -> _Choice:
    if text not in set(choices):
        raise Invalid(f"{name} must be one of {', '.join(choices)}", field=name)
    return choices(text)
