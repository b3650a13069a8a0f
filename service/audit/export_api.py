"""The endpoints that list exports and hand out their receipts."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta
from quart import Response

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.model.instants import format_us, optional_us
from service.access.roles import Capability
from service.audit.export_entries import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    ExportState,
    get_export,
    list_exports,
    state_of,
)
from service.audit.services import AuditServices
from service.core.errors import ExportNotFinished, ExportNotFound, InvalidCursor
from service.store.tables import ExportEntry, Organisation
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, Request
from service.web.parameter_types import Cursor, Omittable, TimestampUs
from service.web.responses import JSON_TYPE

END_WAIT_S: Final = 1.0
"""How long a request for a receipt waits for the end of its export."""

_END_POLL_S: Final = 0.05

RECEIPT_VERSION: Final = 1
"""The version of the receipt's keys and their meaning."""

DIGEST: Final = "digest"
"""The field that tells a damaged receipt."""

RECEIPT_SUFFIX: Final = ".receipt.json"
_SUFFIXES: Final = {None: "", Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}

Filters = Annotated[
    dict[str, list[str]], Meta(description="The query's filters and order, as given.")
]
Bound = Annotated[
    TimestampUs | None,
    Meta(description="The bound that applied, the retention floor included; null: none."),
]
Floor = Annotated[
    TimestampUs | None, Meta(description="No row before it is in the file; null: no limit.")
]
Watermark = Annotated[
    int, Meta(ge=0, description="The number in the id of the last row that could be in the file.")
]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0)]


resource = Resource("exports", "/exports", Tag.EXPORTS, AuditServices)


class ExportsQuery(Request):
    """Which page of exports."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMIT_MAX, description=f"Exports on a page; default {LIMIT_DEFAULT}.")
    ] = LIMIT_DEFAULT
    cursor: Cursor | None = None


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
    sent_rows: Count
    bytes: Count
    sha256: Sha256 | None
    version: str


class ExportList(Answer):
    """Exports, newest first. `next_cursor` is null on the last page."""

    org: str
    exports: list[ExportedFile]
    next_cursor: str | None


class Receipt(Answer):
    """What a finished export was, to keep beside its file. The order of the keys is fixed."""

    receipt: Annotated[int, Meta(description="The version of this form: 1.")]
    org: str
    tenant_id: str
    export_id: str
    actor: str
    actor_source: str
    started_at: TimestampUs
    finished_at: TimestampUs
    file_name: Annotated[str, Meta(description="The name that was suggested for the file.")]
    format: ExportFormat
    compress: Compression | None
    raw: bool
    filters: Filters
    since: Bound
    until: Bound
    retention_floor: Floor
    watermark: Watermark
    rows: Count
    bytes: Count
    sha256: Sha256
    version: Annotated[str, Meta(description="The version of the service.")]
    digest: Omittable[
        Annotated[
            Sha256,
            Meta(
                description="SHA-256 of this receipt without `digest`, as JSON without white space,"
                " its keys in their order. Receipts of earlier versions have none."
            ),
        ]
    ] = UNSET


@resource.get(
    "list_exports",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    query=ExportsQuery,
    returns=ExportList,
    refuses=[InvalidCursor],
)
async def exports(call: Call[AuditServices], query: ExportsQuery) -> ExportList:
    """List the organisation's exports, a page at a time, newest first."""
    async with call.read() as session:
        page = await list_exports(session, call.org.id, query.limit, query.cursor)
    return list_form(call.org.slug, page.entries, page.next_cursor, call.services.clock())


@resource.get(
    "get_export",
    "/<export_id>",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    returns=ExportedFile,
    refuses=[ExportNotFound],
)
async def one_export(call: Call[AuditServices], export_id: str) -> ExportedFile:
    """One export: what was asked for, how far it is, what was sent."""
    async with call.read() as session:
        entry = await get_export(session, call.org.id, export_id)
    return export_form(entry, call.services.clock())


@resource.get(
    "get_export_receipt",
    "/<export_id>/receipt",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    returns=Receipt,
    refuses=[ExportNotFound, ExportNotFinished],
    headers={"content-disposition": "A name for the receipt, beside that of the file."},
)
async def receipt(call: Call[AuditServices], export_id: str) -> Response:
    """The receipt of a finished export, to keep beside its file."""
    entry = await _ended(call, export_id)
    made = receipt_of(entry, call.org, call.services.clock())
    name = entry_file_name(call.org.slug, entry) + RECEIPT_SUFFIX
    return Response(
        receipt_text(made),
        content_type=JSON_TYPE,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


async def _ended(call: Call[AuditServices], export_id: str) -> ExportEntry:
    """The export; one that runs is given END_WAIT_S to end. Raises ExportNotFound.

    Its end is recorded after the last byte, and a client that has all of the file may ask before.
    """
    ends_at = time.monotonic() + END_WAIT_S
    while True:
        async with call.read() as session:
            entry = await get_export(session, call.org.id, export_id)
        if entry.ended_at is not None or time.monotonic() >= ends_at:
            return entry
        await asyncio.sleep(_END_POLL_S)


def export_form(entry: ExportEntry, now: datetime) -> ExportedFile:
    """`entry` as the API shows it at `now`."""
    return ExportedFile(
        **_common_fields(entry),
        id=entry.id,
        state=state_of(entry, now),
        verdict_source=entry.verdict_source,
        request_id=entry.request_id,
        ended_at=optional_us(entry.ended_at),
        sent_rows=entry.sent_rows,
        sha256=entry.sha256,
    )


def list_form(
    slug: str, entries: Sequence[ExportEntry], next_cursor: str | None, now: datetime
) -> ExportList:
    """A page of exports."""
    return ExportList(
        org=slug, exports=[export_form(entry, now) for entry in entries], next_cursor=next_cursor
    )


def receipt_of(entry: ExportEntry, org: Organisation, now: datetime) -> Receipt:
    """The receipt of `entry`, an export of `org`. Raises ExportNotFinished."""
    state = state_of(entry, now)
    if state is not ExportState.FINISHED or entry.ended_at is None or entry.sha256 is None:
        raise ExportNotFinished(value=state)
    receipt = Receipt(
        **_common_fields(entry),
        receipt=RECEIPT_VERSION,
        org=org.slug,
        tenant_id=org.id,
        export_id=entry.id,
        finished_at=format_us(entry.ended_at),
        file_name=entry_file_name(org.slug, entry),
        sha256=entry.sha256,
    )
    return msgspec.structs.replace(receipt, digest=receipt_digest(msgspec.to_builtins(receipt)))


def receipt_digest(fields: dict[str, Any]) -> str:
    """The digest of a receipt with these fields; a digest among them does not count.

    Of all fields that there are, so that a later version may add some.
    """
    counted = {name: value for name, value in fields.items() if name != DIGEST}
    return hashlib.sha256(msgspec.json.encode(counted)).hexdigest()


def receipt_text(receipt: Receipt) -> bytes:
    """`receipt` as indented JSON, its keys in their order."""
    return msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n"


def file_name(
    slug: str, at: datetime, export_format: ExportFormat, compression: Compression | None
) -> str:
    """A name for the file with the organisation, time and format."""
    return f"{slug}-audit-{at:%Y%m%dT%H%M%SZ}.{export_format}{_SUFFIXES[compression]}"


def entry_file_name(slug: str, entry: ExportEntry) -> str:
    """The name that was suggested for the file of `entry`."""
    compression = None if entry.compression is None else Compression(entry.compression)
    return file_name(slug, entry.started_at, ExportFormat(entry.format), compression)


def _common_fields(entry: ExportEntry) -> dict[str, Any]:
    """What the API's form and the receipt both say."""
    return {
        "actor": entry.actor,
        "actor_source": entry.actor_source,
        "started_at": format_us(entry.started_at),
        "format": ExportFormat(entry.format),
        "compress": None if entry.compression is None else Compression(entry.compression),
        "raw": entry.is_raw,
        "filters": entry.filters,
        "since": optional_us(entry.since),
        "until": optional_us(entry.until),
        "retention_floor": optional_us(entry.retention_floor),
        "watermark": entry.watermark,
        "rows": entry.rows,
        "bytes": entry.sent_bytes,
        "version": entry.version,
    }
