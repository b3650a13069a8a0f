"""What a registry answers with, and what an answer may take."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """What an answer may take at most, in bytes and seconds."""

    document_bytes: int = 64 * 2**20
    file_bytes: int = 2 * 2**30
    connect_s: float = 5.0
    progress_s: float = 15.0
    """Without one byte; pip and npm give up on us after as long or longer."""

    queue_s: float = 30.0
    """For one of the connections, when all are in use."""

    document_s: float = 60.0
    file_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Validators:
    """What a registry knows one version of a document by (RFC 9110, 8.8)."""

    etag: str | None = None
    last_modified: str | None = None

    @property
    def conditions(self) -> dict[str, str]:
        """The header fields that ask for the document unless it is still this version."""
        fields = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Document:
    """A registry's response, whole and decompressed."""

    url: str
    """Where it came from after redirects: what its relative links are relative to."""

    content_type: str
    pieces: tuple[bytes, ...]
    """The body in order, as it came: to join 20 MB holds the interpreter's lock for 30 ms."""

    validators: Validators = Validators()

    @property
    def body(self) -> bytes:
        """All pieces in one: for a short document, or in another process."""
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
    """What became of this process's last requests, for people who operate it."""

    answered_at: datetime | None = None
    failed_at: datetime | None = None
    failure: str | None = None
    """Why the last request that failed did; no credentials, nothing of the registry's text."""
