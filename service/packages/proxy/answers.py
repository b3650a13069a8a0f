"""Responses of a registry, and the limits that each must keep."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """The limits of one response, in bytes and seconds."""

    document_bytes: int = 64 * 2**20
    file_bytes: int = 2 * 2**30
    connect_s: float = 5.0
    progress_s: float = 15.0
    """The longest pause between two reads. pip and npm give up on us no sooner than that."""

    document_s: float = 60.0
    query_s: float = 3.0
    """How long the answer to a query may take while the registry is suspect: npm waits for that of
    its audit at the end of each install, and goes on without it."""

    file_s: float = 1800.0
    slow_s: float = 30.0
    slow_bytes: int = 64 * 1024
    """A file of which fewer bytes arrive in so many seconds is given up: it holds a place."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The etag and date by which a registry recognises a document's version (RFC 9110, 8.8)."""

    etag: str | None = None
    last_modified: str | None = None

    @property
    def conditions(self) -> dict[str, str]:
        """The header fields that ask for the document unless it is still this version."""
        fields = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RegistryDocument:
    """A registry's response, whole and decompressed."""

    url: str
    """Where it came from, after redirects: the base of its relative links."""

    content_type: str
    pieces: tuple[bytes, ...]
    """The body, in order, unjoined: joining 20 MB holds the interpreter's lock for 30 ms."""

    validators: Validators = Validators()

    @property
    def body(self) -> bytes:
        """All pieces joined; only for a short document, or in another process."""
        return b"".join(self.pieces)

    @property
    def size(self) -> int:
        """The length of the body."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class FileStream:
    """A file that is being received: its bytes as the registry stores them."""

    length: int | None
    """Its size, if the registry states it; the connection fails if that is wrong."""

    pieces: AsyncIterator[bytes]


@dataclass(slots=True)
class UpstreamHealth:
    """When this process's requests last succeeded and failed, and why, for operators."""

    answered_at: datetime | None = None
    failed_at: datetime | None = None
    failure: str | None = None
    """Why the last failed request failed, without credentials or the registry's own text."""
