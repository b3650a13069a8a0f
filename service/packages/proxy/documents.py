"""What all upstream documents share: limits, refusals and the stored encoding."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import msgspec

from service.packages.proxy.answers import RegistryDocument

DOCUMENT_BYTES_MAX: Final = 64 << 20

ENTRIES_PER_CHUNK: Final = 1000
"""Files or versions that one call of a codec handles: 1 to 3 ms."""

CHUNK_BYTES: Final = 1 << 20
"""What it handles of large ones: a version may have 2 MB, of which the codec makes a copy."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How one kind of document is requested, parsed and stored.

    Large documents are parsed in another process, so `parse`, `is_empty` and `encode` must be
    picklable.
    """

    accept: str
    """The `Accept` header of requests."""

    path: Callable[[str], str]
    """The path of a name's document, relative to the registry and percent-encoded."""

    parse: Callable[[RegistryDocument, str], T]
    """The value of a document, which must be that of the given name. Raises DocumentInvalid."""

    is_empty: Callable[[T], bool]
    """True for a value without any file that does not say why; see `DocumentCache`."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """May raise anything for bytes written by another version: the document is fetched again."""

    release: Callable[[T], object]
    """Empties a value that is no longer used, entry by entry."""

    listed: Callable[[T], frozenset[str] | None] = lambda _: None
    """The names of all files that it lists; None if the registry may list others."""


class DocumentInvalid(Exception):
    """An upstream's document cannot be used; its text is constant, for logs and metrics."""


class EncodingUnknown(Exception):
    """Stored bytes were written by another version of the program, or are damaged: fetch again."""


class EntryDropped(Exception):
    """One file or version of a document is not offered; its text is constant."""


def refuse_oversized(body: bytes) -> None:
    """Raise DocumentInvalid if `body` has more than DOCUMENT_BYTES_MAX bytes."""
    if len(body) > DOCUMENT_BYTES_MAX:
        raise DocumentInvalid("document is too large")


def decode_untrusted(decode: Callable[[bytes | msgspec.Raw], T], body: bytes | msgspec.Raw) -> T:
    """An upstream's bytes, decoded by `decode`, the method of a msgspec JSON decoder.

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


def encode_versioned(version: bytes, head: msgspec.Struct, entries: Sequence[object]) -> bytes:
    """`head` and `entries` as msgpack, after `version`, which names their encoding.

    Entries are encoded ENTRIES_PER_CHUNK or CHUNK_BYTES at a time: one call of the codec holds the
    interpreter's lock until it ends, and so stops the event loop even if it runs in another thread.
    """
    chunks = [part for chunk in chunked(entries) for part in _encoded_parts(chunk)]
    return version + msgspec.msgpack.encode((head, chunks))


def _encoded_parts(entries: Sequence[object]) -> Iterator[bytes]:
    """`entries` in parts that have one entry, or at most CHUNK_BYTES."""
    encoded = msgspec.msgpack.encode(entries)
    if len(encoded) <= CHUNK_BYTES or len(entries) == 1:
        yield encoded
        return
    middle = len(entries) // 2
    yield from _encoded_parts(entries[:middle])
    yield from _encoded_parts(entries[middle:])


def decode_versioned(
    version: bytes, encoded: bytes, head: type[T], entry: type[U]
) -> tuple[T, list[U]]:
    """The values that `encode_versioned` encoded. Raises EncodingUnknown for all other bytes."""
    if not encoded.startswith(version):
        raise EncodingUnknown
    outer = msgspec.msgpack.Decoder(tuple[head, list[memoryview]])  # type: ignore[valid-type]
    inner = msgspec.msgpack.Decoder(list[entry])  # type: ignore[valid-type]
    try:
        decoded, chunks = outer.decode(memoryview(encoded)[len(version) :])
        return decoded, [item for chunk in chunks for item in inner.decode(chunk)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EncodingUnknown from error


def chunked(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    """`entries` in parts of ENTRIES_PER_CHUNK."""
    for start in range(0, len(entries), ENTRIES_PER_CHUNK):
        yield entries[start : start + ENTRIES_PER_CHUNK]


_HEX_CHARS: Final = {
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
    "blake2b": 128,
}
_DIGESTS: Final = {
    algorithm: re.compile(f"[0-9a-f]{{{chars}}}") for algorithm, chars in _HEX_CHARS.items()
}


def parse_instant(text: str | None) -> datetime | None:
    """The ISO 8601 instant in `text`, in UTC if it has no zone; None if `text` is not one."""
    try:
        instant = datetime.fromisoformat(text) if text else None
        if instant is None or instant.tzinfo is UTC:
            return instant
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_hashes(hashes: Mapping[str, str]) -> dict[str, str]:
    """The entries of `hashes` that are digests of a known algorithm, in lower case."""
    known = {}
    for name, digest in hashes.items():
        algorithm, value = name.lower(), digest.lower()
        pattern = _DIGESTS.get(algorithm)
        if pattern is not None and pattern.fullmatch(value):
            known[algorithm] = value
    return known
