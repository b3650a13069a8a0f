"""The HTTP response of an export: its parameters, headers and body."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, TypeVar

from msgspec import Meta
from quart import Request, Response, request

from analytics.export.compression import Compression
from analytics.export.writers import ExportFormat, FileForm
from analytics.model.filters import only, parse_query
from analytics.model.rows import VerdictSource
from service.audit.api_schemas import AuditEntry
from service.audit.services import AuditServices
from service.errors import Invalid
from service.orgs.roles import Capability
from service.web.content_negotiation import content_coding
from service.web.request_parsing import all_parameters, refuse_head
from service.web.responses import JSON_TYPE

_PARQUET_TYPE: Final = "application/vnd.apache.parquet"
_NDJSON_TYPE: Final = "application/x-ndjson"
_TYPES: Final = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSON: JSON_TYPE,
    ExportFormat.NDJSON: _NDJSON_TYPE,
    ExportFormat.PARQUET: _PARQUET_TYPE,
}
_COMPRESSED_TYPES: Final = {
    Compression.GZIP: "application/gzip",
    Compression.ZSTD: "application/zstd",
}
_SUFFIXES: Final = {None: "", Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}
_FORM_PARAMETERS: Final = frozenset({"format", "compress", "raw"})
_Choice = TypeVar("_Choice", bound=StrEnum)

Bytes = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
EXPORT_MEDIA: Final = {
    "text/csv": str,
    JSON_TYPE: list[AuditEntry],
    _NDJSON_TYPE: Bytes,
    _PARQUET_TYPE: Bytes,
    **dict.fromkeys(_COMPRESSED_TYPES.values(), Bytes),
}
"""The possible content types of an export and their schemas, for the OpenAPI document."""

EXPORT_HEADERS: Final = {
    "content-disposition": "A name for the file.",
    "x-row-count": "The number of rows in the file.",
    "vary": "`accept-encoding`: the file may be compressed in transit.",
}


async def answer_export(services: AuditServices, slug: str, origin: VerdictSource) -> Response:
    """The requested file; its audit row is durable before this returns."""
    refuse_head(request)
    caller, org = await services.access.authorize(slug, Capability.AUDIT_EXPORT, origin)
    parameters = all_parameters(request)
    form = _file_form(request, parameters)
    query = parse_query(
        {name: values for name, values in parameters.items() if name not in _FORM_PARAMETERS}
    )
    now = services.clock()
    begun = await services.exporter.prepare(org, query, form, caller.audit_context, now)
    response = Response(
        await services.exporter.stream(begun),
        content_type=_TYPES[form.format]
        if form.compression is None
        else _COMPRESSED_TYPES[form.compression],
        headers={
            "content-disposition": f'attachment; filename="{file_name(slug, now, form)}"',
            "x-row-count": str(begun.rows),
            "vary": "accept-encoding",
        },
    )
    if form.coding is not None:
        response.headers["content-encoding"] = form.coding
    # Replaces Quart's limit of one minute. Also ends transfers to stalled readers, which the
    # exporter does not notice.
    response.timeout = services.settings.export_max_s
    return response


def file_name(slug: str, at: datetime, form: FileForm) -> str:
    """A file name with the organisation, time and format."""
    return f"{slug}-audit-{at:%Y%m%dT%H%M%SZ}.{form.format}{_SUFFIXES[form.compression]}"


def _file_form(request: Request, parameters: Mapping[str, Sequence[str]]) -> FileForm:
    export_format = _choice("format", only(parameters, "format"), ExportFormat)
    compress = only(parameters, "compress")
    compression = None if compress is None else _choice("compress", compress, Compression)
    is_compressed = export_format is ExportFormat.PARQUET or compression is not None
    if export_format is ExportFormat.PARQUET and compression is not None:
        raise Invalid(
            "compress does not go with parquet, which is compressed already", field="compress"
        )
    return FileForm(
        format=export_format,
        compression=compression,
        coding=None if is_compressed else content_coding(request),
        is_raw=_flag("raw", only(parameters, "raw")),
    )


def _choice(name: str, text: str | None, choices: type[_Choice]) -> _Choice:
    if text not in set(choices):
        raise Invalid(f"{name} must be one of {', '.join(choices)}", field=name)
    return choices(text)


def _flag(name: str, text: str | None) -> bool:
    if text not in {None, "0", "1"}:
        raise Invalid(f"{name} must be 0 or 1", field=name)
    return text == "1"
