"""A registry's documents on disk: compact, compressed and checked when read. Failures are misses.

A file begins with the SHA-256 of the rest. Its modification time is when the registry last
confirmed the document, so that a confirmation writes no bytes and every process sees it.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec
import pyarrow as pa
import structlog

from service.audit.lake import Lake
from service.core.threads import run_uncancellable
from service.packages.proxy.answers import RegistryDocument, Validators
from service.packages.proxy.disk_cache import DiskCache, Usage, touch

UNPACKED_BYTES_MAX: Final = 256 * 2**20
_CODEC: Final = pa.Codec("zstd", compression_level=3)
_DIGEST_BYTES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_Value = TypeVar("_Value")
_log = structlog.get_logger(__name__)


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    etag: str | None
    last_modified: str | None
    unpacked_bytes: int
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is stored."""

    version: str
    """Changes whenever the contents or validators do."""

    validators: Validators
    compressed: bytes
    encoded_bytes: int

    def encoded(self) -> bytes:
        """The bytes that `pack` was given."""
        encoded: bytes = _CODEC.decompress(self.compressed, self.encoded_bytes, asbytes=True)
        return encoded


@dataclass(frozen=True, slots=True)
class CompressedDocument:
    """A document on its way to another process; `body_bytes` is the length of its body.

    Pickling 20 MB is one call that holds the interpreter's lock for 10 to 20 ms, in which no
    request is answered. The compressor releases the lock, and leaves a tenth or less to pickle.
    """

    url: str
    content_type: str
    validators: Validators
    body_bytes: int
    compressed: bytes

    @classmethod
    def of(cls, document: RegistryDocument) -> Self:
        """`document` in a form that is quick to pickle."""
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            for piece in document.pieces:
                stream.write(piece)
        compressed = sink.getvalue().to_pybytes()
        return cls(
            document.url, document.content_type, document.validators, document.size, compressed
        )

    def document(self) -> RegistryDocument:
        """The document, with its body in one piece."""
        body = _CODEC.decompress(self.compressed, self.body_bytes, asbytes=True)
        return RegistryDocument(self.url, self.content_type, (body,), self.validators)


class DocumentDamaged(Exception):
    """Stored bytes are not what was written."""


def pack(encoded: bytes, validators: Validators) -> bytes:
    """The contents of the file that stores the document `encoded`."""
    body = msgspec.msgpack.encode(
        _Packed(
            validators.etag,
            validators.last_modified,
            len(encoded),
            _CODEC.compress(encoded, asbytes=True),
        )
    )
    return hashlib.sha256(body).digest() + body


def unpack(content: bytes) -> StoredDocument:
    """The document in a file's contents, as `pack` made them. Raises DocumentDamaged."""
    body = memoryview(content)[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]:
        raise DocumentDamaged("its checksum is wrong")
    try:
        packed = msgspec.msgpack.decode(body, type=_Packed)
    except msgspec.MsgspecError as error:  # perhaps written by another version of the program
        raise DocumentDamaged(f"it cannot be decoded ({type(error).__name__})") from error
    # The decompressor allocates this much at once, before it has read a byte.
    if packed.unpacked_bytes > UNPACKED_BYTES_MAX:
        raise DocumentDamaged("it is too long")
    return StoredDocument(
        version=content[:_DIGEST_BYTES].hex(),
        validators=Validators(packed.etag, packed.last_modified),
        compressed=packed.content,
        encoded_bytes=packed.unpacked_bytes,
    )


def _checked(stored: StoredDocument, check: Callable[[StoredDocument], object]) -> StoredDocument:
    try:
        check(stored)
    except Exception as error:  # perhaps written by another version of the program
        raise DocumentDamaged(f"it cannot be decoded ({type(error).__name__})") from error
    return stored


class DocumentFiles:
    """The documents of one data dir, shared by several processes.

    Except for `run_in_thread`, its methods raise nothing: if the disk fails or is full, that is
    logged, and the registry is asked more often.
    """

    def __init__(self, root: Path, bytes_max: int, lake: Lake, *, free_bytes_min: int) -> None:
        self._folder = DiskCache(root, bytes_max, free_bytes_min=free_bytes_min)
        self._lake = lake

    async def load(
        self,
        key: str,
        check: Callable[[StoredDocument], object],
        newer_than: datetime | None = None,
    ) -> tuple[StoredDocument, datetime] | None:
        """The document and when it was confirmed; None if there is none, or none that is newer.

        A damaged one is removed, as is one for which `check` raises anything.
        """
        return await self._try(partial(self._load, key, check, newer_than))

    async def run_in_thread(self, work: Callable[[], _Value]) -> _Value:
        """The result of `work` on a large document; raises what `work` raises."""
        return await self._lake.run_in_thread(work)

    async def save(self, key: str, content: bytes, confirmed_at: datetime, org: str) -> None:
        """Store `content`, which `pack` made for `org`, as confirmed at this instant."""
        await self._try(partial(self._save, key, content, confirmed_at, org))

    async def confirm(self, key: str, at: datetime) -> None:
        """Record that the registry still had this version at this instant."""
        await self._try(partial(_set_time, self._path(key), at))

    async def remove(self, key: str) -> None:
        """Forget the document."""
        await self._try(partial(self._path(key).unlink, missing_ok=True))

    async def usage(self) -> Usage:
        """What is on disk now. Reads the size of each file."""
        return await self._try(self._folder.usage) or Usage(0, 0)

    async def sweep(self) -> None:
        """Remove what processes that died left behind, and what is over the limit."""
        await self._try(self._folder.remove_left_parts)
        await self._try(self._folder.shrink)

    async def _try(self, work: Callable[[], _Value]) -> _Value | None:
        try:
            return await run_uncancellable(work)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("document_file_failed", reason=str(error))
            return None

    def _path(self, key: str) -> Path:
        return self._folder.path(f"document-{hashlib.sha256(key.encode()).hexdigest()}")

    def _load(
        self,
        key: str,
        check: Callable[[StoredDocument], object],
        newer_than: datetime | None,
    ) -> tuple[StoredDocument, datetime] | None:
        path = self._path(key)
        with path.open("rb") as file:
            confirmed_at = _instant(os.fstat(file.fileno()).st_mtime_ns)
            if newer_than is not None and confirmed_at <= newer_than:
                return None
            touch(file.fileno())
            content = file.read()
        try:
            return _checked(unpack(content), check), confirmed_at
        except DocumentDamaged as error:
            _log.warning("cached_document_damaged", key=key, reason=str(error))
            path.unlink(missing_ok=True)
            return None

    def _save(self, key: str, content: bytes, confirmed_at: datetime, org: str) -> None:
        part = self._folder.new_part(len(content), org)
        try:
            with os.fdopen(os.dup(part.descriptor), "wb") as file:
                file.write(content)
            # Before the rename: under its name the file would count as confirmed when it was
            # written.
            _set_time(part.path, confirmed_at)
            self._folder.keep(part, self._path(key).name)
        except BaseException:
            self._folder.discard(part)
            raise
        finally:
            os.close(part.descriptor)


def _set_time(path: Path, at: datetime) -> None:
    at_ns = (at - _EPOCH) // _MICROSECOND * 1000
    os.utime(path, ns=(at_ns, at_ns))


def _instant(at_ns: int) -> datetime:
    return _EPOCH + at_ns // 1000 * _MICROSECOND
