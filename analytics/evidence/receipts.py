"""Signed receipts of exports: what is signed, and whether a receipt and its file are as signed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from analytics.evidence.notes import Checkpoint, Note
from analytics.evidence.policies import Policy
from analytics.evidence.verification import Verification

RECEIPT_SUFFIX: Final = ".receipt.json"
RECEIPT_BYTES_MAX: Final = 1024 * 1024

HEADER: Final = "countersign export receipt v1"
DIGEST: Final = "digest"
SIGNATURE: Final = "signature"


class WrongReceipt(ValueError):
    """A receipt that is not as it was signed, or that is not signed."""


class SignedReceipt(msgspec.Struct, frozen=True, rename={"size": "bytes"}):
    """What a signed receipt says of its file; it has further members."""

    tenant_id: str
    export_id: str
    file_name: str
    rows: int
    size: int
    sha256: str
    checkpoint: str
    signature: str


def digest_of(fields: Mapping[str, Any], *without: str) -> str:
    """SHA-256 of a receipt without some members, as JSON without white space, in their order.

    Of all other members that there are, so that a later version may add some.
    """
    counted = {name: value for name, value in fields.items() if name not in without}
    return hashlib.sha256(msgspec.json.encode(counted)).hexdigest()


def signed_text(fields: Mapping[str, Any]) -> str:
    """The text of the note that signs a receipt."""
    return f"{HEADER}\n{digest_of(fields, DIGEST, SIGNATURE)}\n"


def verify_receipt(content: bytes, policy: Policy) -> tuple[SignedReceipt, Checkpoint]:
    """The receipt, which a log of `policy` signed, and the checkpoint that it names.

    Raises WrongReceipt, InvalidNote, msgspec.MsgspecError.
    """
    fields = msgspec.json.decode(content, type=dict[str, Any])
    if fields.get(DIGEST) != digest_of(fields, DIGEST):
        raise WrongReceipt("changed, as its digest is another one")
    if SIGNATURE not in fields:
        raise WrongReceipt("not signed")
    receipt = msgspec.convert(fields, SignedReceipt)
    note = Note.parse(receipt.checkpoint)
    checkpoint = policy.checkpoint(note)
    Note(signed_text(fields), (receipt.signature,)).check(policy.keys_of(checkpoint))
    return receipt, checkpoint


def is_receipt(path: Path) -> bool:
    """Whether the file is JSON, and so no bundle."""
    with path.open("rb") as file:
        return file.read(1) == b"{"


def verify_receipt_file(path: Path, policy: Policy) -> Verification:
    """Whether the receipt is signed, and the file beside it the one that it is of.

    Raises OSError.
    """
    result = Verification()
    with result.about(path.name), path.open("rb") as receipt_file:
        receipt, checkpoint = verify_receipt(receipt_file.read(RECEIPT_BYTES_MAX), policy)
        result.proved.append(
            f"the export {receipt.export_id} of {receipt.tenant_id} has {receipt.rows:,} rows in"
            f" {receipt.size:,} bytes, SHA-256 {receipt.sha256}; the log had at least"
            f" {checkpoint.size:,} rows when it ended, as {checkpoint.origin} signed"
        )
        named = path.name.removesuffix(RECEIPT_SUFFIX)
        exported = path.with_name(receipt.file_name if named == path.name else named)
        with result.about(exported.name), exported.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != receipt.sha256:
                raise WrongReceipt(
                    f"not the file of export {receipt.export_id}: its SHA-256 differs"
                )
            result.proved.append(f"{exported.name} is the file of this export")
    return result
