"""A registry's document on its way to another process: compressed.

To pickle 20 MB is one call that holds the interpreter's lock for 10 to 20 ms, in which no request
is answered. The compressor releases it, and what is left to pickle is a tenth or less.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from service.proxy.answers import Document, Validators

_CODEC: Final = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True, slots=True)
class SqueezedDocument:
    """A Document; `body_bytes` is the length of its body."""

    url: str
    content_type: str
    validators: Validators
    body_bytes: int
    compressed: bytes


def squeeze(document: Document) -> SqueezedDocument:
    """`document` in a form that is quickly pickled."""
    return SqueezedDocument(
        document.url,
        document.content_type,
        document.validators,
        len(document.body),
        _CODEC.compress(document.body, asbytes=True),
    )


def restore(squeezed: SqueezedDocument) -> Document:
    """What `squeeze` was given."""
    body = _CODEC.decompress(squeezed.compressed, squeezed.body_bytes, asbytes=True)
    return Document(squeezed.url, squeezed.content_type, body, squeezed.validators)
