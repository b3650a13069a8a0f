"""Signed receipts of exports: what is signed, and whether a receipt and its file are as signed."""

import hashlib
from collections.abc import Mapping
from typing import IO, Any, Final

import msgspec

from analytics.evidence.notes import Checkpoint, Note
from analytics.evidence.policies import Policy

HEADER: Final = "countersign export receipt v1"
DIGEST: Final = "digest"
SIGNATURE: Final = "signature"
_CHUNK_BYTES: Final = 1024 * 1024


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

    def compare(self, file: IO[bytes]) -> None:
        """Raise WrongReceipt unless `file` is the exported one, byte for byte."""
        digest, size = hashlib.sha256(), 0
        while size <= self.size and (chunk := file.read(_CHUNK_BYTES)):
            digest.update(chunk)
            size += len(chunk)
        if size != self.size or digest.hexdigest() != self.sha256:
            raise WrongReceipt(f"not the file of export {self.export_id}: size or SHA-256 differ")


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
