"""Compresses a registry's document on its way to another process.

Pickling 20 MB is one call that holds the interpreter's lock for 10 to 20 ms, in which no request is
answered. The compressor releases the lock, and leaves a tenth or less to pickle.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from service.packages.proxy.answers import Document, Validators

_CODEC: Final = pa.Codec("zstd")


@dataclass(frozen=True, slots=True)
class SqueezedDocument:
    """A Document; `body_bytes` is the length of its body."""

    url: str
    content_type: str
    validators: Validators
    body_bytes: int
    compressed: bytes


def squeeze(document: Document) -> SqueezedDocument:
    """`document` in a form that is quick to pickle."""
    return SqueezedDocument(
        document.url,
        document.content_type,
        document.validators,
        document.size,
        _compressed(document.pieces),
    )


def restore(squeezed: SqueezedDocument) -> Document:
    """The document that `squeeze` was given, with its body in one piece."""
    body = _CODEC.decompress(squeezed.compressed, squeezed.body_bytes, asbytes=True)
    return Document(squeezed.url, squeezed.content_type, (body,), squeezed.validators)


def _compressed(pieces: Iterable[bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for piece in pieces:
            stream.write(piece)
    compressed: bytes = sink.getvalue().to_pybytes()
    return compressed
