"""The receipt of an export: what is in it, and whether a file is the one that it is of."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from analytics.evidence.notes import Checkpoint, Note
from analytics.evidence.receipts import DIGEST, RECEIPT_BYTES_MAX, digest_of, signed_text
from analytics.export.compression import Compression
from analytics.export.file_check import FileFacts, examine
from analytics.export.formats import ExportFormat
from analytics.model.instants import format_us
from service.audit.evidence.keys import SigningKey
from service.audit.export_entries import ExportState, state_of
from service.audit.refusals import EXPORT_NOT_FINISHED
from service.core.errors import Invalid
from service.store.tables import ExportEntry, Organisation
from service.web.models import SHA256_PATTERN, Answer, NonNegative, Omittable, TimestampUs

RECEIPT_VERSION: Final = 1
"""The version of the receipt's keys and their meaning."""

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
Sha256 = Annotated[str, Meta(pattern=SHA256_PATTERN)]


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
    rows: NonNegative
    bytes: NonNegative
    sha256: Sha256
    version: Annotated[str, Meta(description="The version of the service.")]
    checkpoint: Omittable[
        Annotated[
            str,
            Meta(description="The log's last checkpoint when the export ended, a signed note."),
        ]
    ] = UNSET
    signature: Omittable[
        Annotated[
            str,
            Meta(
                description="The line of a note that signs this receipt without `signature` and"
                " `digest`, by the key of the checkpoint: see `docs/evidence.md`."
            ),
        ]
    ] = UNSET
    digest: Omittable[
        Annotated[
            Sha256,
            Meta(
                description="SHA-256 of this receipt without `digest`, as JSON without white space,"
                " its keys in their order. Receipts of earlier versions have none."
            ),
        ]
    ] = UNSET


def receipt_of(
    entry: ExportEntry, org: Organisation, now: datetime, key: SigningKey | None = None
) -> Receipt:
    """The receipt of `entry`, an export of `org`, signed by `key`: that of its checkpoint.

    Raises EXPORT_NOT_FINISHED.
    """
    state = state_of(entry, now)
    if state is not ExportState.FINISHED or entry.ended_at is None or entry.sha256 is None:
        raise EXPORT_NOT_FINISHED(value=state)
    receipt = Receipt.from_row(
        entry,
        **renamed_fields(entry),
        receipt=RECEIPT_VERSION,
        org=org.slug,
        export_id=entry.id,
        finished_at=format_us(entry.ended_at),
        file_name=entry_file_name(org.slug, entry),
        checkpoint=entry.checkpoint or UNSET,
        signature=UNSET,
        digest=UNSET,
    )
    if key is not None and entry.checkpoint is not None:
        origin = Checkpoint.parse(Note.parse(entry.checkpoint).text).origin
        line = key.line(origin, signed_text(msgspec.to_builtins(receipt)))
        receipt = msgspec.structs.replace(receipt, signature=line)
    return msgspec.structs.replace(receipt, digest=digest_of(msgspec.to_builtins(receipt)))


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


def renamed_fields(entry: ExportEntry) -> dict[str, Any]:
    """What the API's form and the receipt do not say as `entry` does."""
    return {
        "format": ExportFormat(entry.format),
        "compress": None if entry.compression is None else Compression(entry.compression),
        "raw": entry.is_raw,
        "bytes": entry.sent_bytes,
    }


@dataclass(frozen=True, slots=True)
class FileDifference:
    """One difference between a file and its receipt; `found` is None if it cannot be told."""

    what: str
    expected: int | str
    found: int | str | None


def read_receipt(path: Path) -> Receipt:
    """The receipt in the file at `path`. Raises Invalid, OSError."""
    with path.open("rb") as file:
        text = file.read(RECEIPT_BYTES_MAX)
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        receipt = msgspec.convert(fields, Receipt)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not the receipt of an export: {error}") from error
    if receipt.receipt != RECEIPT_VERSION:
        raise Invalid(
            f"{path} has a receipt of version {receipt.receipt}; this service reads version"
            f" {RECEIPT_VERSION}: use a newer countersign"
        )
    if receipt.digest not in {UNSET, digest_of(fields, DIGEST)}:
        raise Invalid(f"{path} is damaged: its digest is another one. Get the receipt again")
    return receipt


def compare_file(path: Path, receipt: Receipt) -> list[FileDifference]:
    """How the file at `path` differs from what `receipt` says; nothing if it does not.

    Raises OSError if it cannot be read.
    """
    compression = None if receipt.compress is None else Compression(receipt.compress)
    with path.open("rb") as file:
        examined = examine(file, ExportFormat(receipt.format), compression)
    return differences(receipt, examined)


def differences(receipt: Receipt, found: FileFacts) -> list[FileDifference]:
    """How `found` differs from what `receipt` says."""
    compared = [
        FileDifference("bytes", receipt.bytes, found.size),
        FileDifference("sha256", receipt.sha256, found.sha256),
        FileDifference("rows", receipt.rows, found.rows),
    ]
    return [comparison for comparison in compared if comparison.expected != comparison.found]
