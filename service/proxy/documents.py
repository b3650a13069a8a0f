"""What documents of all upstream registries have in common: limits, refusals, encodings."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

DOCUMENT_BYTES_MAX: Final = 64 << 20

T = TypeVar("T")


class DocumentInvalid(Exception):
    """An upstream's document cannot be used; `reason` is a constant text for logs and metrics."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class EncodingUnknown(Exception):
    """Stored bytes were written by another version of the program, or are damaged: fetch again."""


class EntryDropped(Exception):
    """One file or version of a document is not offered; `reason` is a constant text."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def refuse_oversized(body: bytes) -> None:
    """Raises DocumentInvalid if `body` has more than DOCUMENT_BYTES_MAX bytes."""
    if len(body) > DOCUMENT_BYTES_MAX:
        raise DocumentInvalid("document is too large")


def decode_untrusted(decode: Callable[[bytes | msgspec.Raw], T], body: bytes | msgspec.Raw) -> T:
    """What `decode`, of a msgspec JSON decoder, makes of an upstream's bytes.

    Raises DocumentInvalid for bytes that are not JSON of the expected form, and for nesting
    deeper than the interpreter's recursion limit.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise DocumentInvalid("document has members of other types than expected") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DocumentInvalid("document is not JSON") from error
    except RecursionError as error:
        raise DocumentInvalid("document is nested too deeply") from error


def encode_versioned(version: bytes, document: msgspec.Struct) -> bytes:
    """`document` as msgpack behind `version`, which names the form it is encoded in."""
    return version + msgspec.msgpack.encode(document)


def decode_versioned(version: bytes, encoded: bytes, form: type[T]) -> T:
    """What `encode_versioned` encoded. Raises EncodingUnknown for all other bytes."""
    if not encoded.startswith(version):
        raise EncodingUnknown
    try:
        return msgspec.msgpack.decode(memoryview(encoded)[len(version) :], type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EncodingUnknown from error
