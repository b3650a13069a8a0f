"""Compares a file with the receipt of its export."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from analytics.export.compression import Compression
from analytics.export.file_check import FileFacts, examine
from analytics.export.formats import ExportFormat
from service.audit.export_api import RECEIPT_VERSION, Receipt, receipt_digest
from service.core.errors import Invalid

RECEIPT_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Difference:
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
    if receipt.digest not in {UNSET, receipt_digest(fields)}:
        raise Invalid(f"{path} is damaged: its digest is another one. Get the receipt again")
    return receipt


def compare_file(path: Path, receipt: Receipt) -> list[Difference]:
    """How the file at `path` differs from what `receipt` says; nothing if it does not.

    Raises OSError if it cannot be read.
    """
    compression = None if receipt.compress is None else Compression(receipt.compress)
    with path.open("rb") as file:
        examined = examine(file, ExportFormat(receipt.format), compression)
    return differences(receipt, examined)


def differences(receipt: Receipt, found: FileFacts) -> list[Difference]:
    """How `found` differs from what `receipt` says."""
    compared = [
        Difference("bytes", receipt.bytes, found.size),
        Difference("sha256", receipt.sha256, found.sha256),
        Difference("rows", receipt.rows, found.rows),
    ]
    return [comparison for comparison in compared if comparison.expected != comparison.found]
