"""Serves the file of a package: whole, in part, or its headers alone."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from quart import Request, Response

from analytics.model.envelopes import CutCause
from service.core.header_names import API_KEY_HEADER
from service.packages.proxy.disk_cache import LoadedFile, OpenedFile
from service.packages.proxy.downloads import Admit, DownloadReader
from service.packages.proxy.file_cache import FileCache
from service.packages.proxy.file_keys import CacheKey, FileKey
from service.packages.refusals import NotAsDocumented, UpstreamFailed
from service.web.responses import begun


class Recorded(Protocol):
    """An install whose row is durable."""

    def cut(self, bytes_sent: int, cause: CutCause) -> None:
        """The file did not arrive whole: no more bytes were sent."""

    async def verified(self) -> None:
        """All of the file has arrived here and is what it should be; its last byte may be sent."""


class Recorder(Protocol):
    """Records the install of a file before its first byte is sent."""

    def __call__(self, sha256: str | None, *, is_verified: bool) -> Coroutine[Any, Any, Recorded]:
        """The install, once its row is durable.

        `sha256` is None if it is not known yet. If not `is_verified`, the result's `verified` is
        awaited before the last byte is sent.
        """


async def followed(
    pieces: AsyncGenerator[bytes, None], size: Callable[[], int | None], install: Recorded
) -> AsyncGenerator[bytes, None]:
    """`pieces`; `install` is cut if they fail or are abandoned before all of `size` is sent.

    Bytes count as sent when the next piece is asked for: the connection has taken them by then.
    """
    given = sent = 0
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if given + len(piece) == size():
                    await install.verified()
                given += len(piece)
                yield piece
                sent = given
    except (GeneratorExit, asyncio.CancelledError):
        # A client may close the connection as soon as it has the last byte.
        if given != size():
            install.cut(sent, "connection_closed")
        raise
    except Exception as error:
        install.cut(sent, _cause_of(error))
        raise


async def recorded(record: Recorder, sha256: str | None, *, is_verified: bool) -> Recorded:
    """The install of `record`; if the request is cancelled meanwhile, the row it left is cut."""
    recording = asyncio.ensure_future(record(sha256, is_verified=is_verified))
    try:
        return await asyncio.shield(recording)
    except asyncio.CancelledError:
        recording.add_done_callback(_cut_at_once)
        raise


def _cut_at_once(recording: asyncio.Future[Recorded]) -> None:
    if not recording.cancelled() and recording.exception() is None:
        recording.result().cut(0, "connection_closed")


def _cause_of(error: Exception) -> CutCause:
    if isinstance(error, NotAsDocumented):
        return "digest_mismatch"
    return "upstream_failed" if isinstance(error, UpstreamFailed) else "storage_failed"


_TYPE: Final = "application/octet-stream"


def is_continuation(request: Request, key: FileKey) -> bool:
    """True if `file_answer` will send a part that lacks the file's first byte."""
    headers = request.headers
    return is_later_part(headers.get("range"), headers.get("if-range"), key.etag)


def is_known(request: Request, key: FileKey) -> bool:
    """True if the client already has the file and asks whether it may use it."""
    return request.if_none_match.contains(str(key))


async def file_answer(
    request: Request,
    files: FileCache,
    key: CacheKey,
    size: int | None,
    admit: Admit,
    record: Recorder | None = None,
) -> Response:
    """The file with this digest at its registry, or the requested part of it.

    `record` is awaited before the first byte, once that can be sent. Raises what it raises, and
    UpstreamMissing, UpstreamFailed and StoreUnavailable; a later failure breaks the connection.
    """
    headers = {
        "etag": key.file.etag,
        "accept-ranges": "bytes",
        # Clients ask again each time: what is allowed may change at any moment.
        "cache-control": "private, no-cache",
        "vary": f"authorization, {API_KEY_HEADER}",
    }
    if is_known(request, key.file):
        return Response(status=304, headers=headers)
    if request.method == "HEAD" and size is not None:
        return _answer(b"", 200, headers | {"content-length": str(size)})
    opened = files.loaded(key, size) or await _opened(files, key, size, admit)
    asked = request.headers.get("range")
    if wants_range(asked, request.headers.get("if-range"), key.file.etag) and asked is not None:
        whole = await opened.complete() if isinstance(opened, DownloadReader) else opened
        return await _part(request, whole, asked, headers, record)
    if request.method == "HEAD":
        await opened.close()
        return _answer(b"", 200, headers | _length(opened.size))
    install = await _recorded(opened, record)
    if not isinstance(opened, DownloadReader):
        body = await _body(opened, 0, opened.size, install)
        return _answer(body, 200, headers | _length(opened.size))
    pieces = opened.pieces()
    if install is not None:
        pieces = followed(pieces, lambda: opened.size, install)
    return _answer(await begun(pieces), 200, headers | _length(opened.size))


async def _opened(
    files: FileCache, key: CacheKey, size: int | None, admit: Admit
) -> OpenedFile | LoadedFile | DownloadReader:
    opened = await files.open(key, size, admit)
    return await files.load(key, opened) if isinstance(opened, OpenedFile) else opened


async def _recorded(
    opened: OpenedFile | LoadedFile | DownloadReader, record: Recorder | None
) -> Recorded | None:
    """What `record` returns, once there is a first byte to send; on failure the file is closed."""
    if record is None:
        return None
    try:
        is_verified = True
        if isinstance(opened, DownloadReader):
            await opened.ready()
            is_verified = opened.is_verified
        return await recorded(record, opened.sha256, is_verified=is_verified)
    except BaseException:
        await opened.close()
        raise


async def _body(
    file: OpenedFile | LoadedFile, start: int, stop: int, install: Recorded | None
) -> bytes | AsyncIterator[bytes]:
    if isinstance(file, LoadedFile):
        return file.part(start, stop)  # one piece: whether it arrived cannot be seen
    pieces = file.pieces(start, stop)
    if install is not None:
        pieces = followed(pieces, lambda: stop - start, install)
    return await begun(pieces)


async def _part(
    request: Request,
    file: OpenedFile | LoadedFile,
    asked: str,
    headers: dict[str, str],
    record: Recorder | None,
) -> Response:
    try:
        part = parse_range(asked, file.size)
    except RangeUnsatisfiable:
        await file.close()
        return _answer(b"", 416, headers | {"content-range": f"bytes */{file.size}"})
    start, stop = (0, file.size) if part is None else (part.start, part.stop)
    headers |= _length(stop - start)
    if part is not None:
        headers |= {"content-range": part.content_range(file.size)}
    status = 200 if part is None else 206
    if request.method == "HEAD":
        await file.close()
        return _answer(b"", status, headers)
    install = await _recorded(file, record)
    return _answer(await _body(file, start, stop, install), status, headers)


def _length(size: int | None) -> dict[str, str]:
    return {} if size is None else {"content-length": str(size)}


def _answer(body: bytes | AsyncIterator[bytes], status: int, headers: dict[str, str]) -> Response:
    response = Response(body, status=status, content_type=_TYPE)
    for name, value in headers.items():
        response.headers[name] = value
    # Only the connection's own limits apply: a download may take as long as it makes progress.
    response.timeout = None
    return response


_RANGE: Final = re.compile(
    r"bytes[ \t]*=[ \t]*(\d{0,20})-(\d{0,20})[ \t]*", re.IGNORECASE | re.ASCII
)


class RangeUnsatisfiable(Exception):
    """The range has no byte of the file: 416 with `content-range: bytes */<size>`."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from `start` up to, not including, `stop`; at least one."""

    start: int
    stop: int

    def content_range(self, size: int) -> str:
        """The `content-range` of a 206 with these bytes of a file of `size` bytes."""
        return f"bytes {self.start}-{self.stop - 1}/{size}"


def wants_range(range_field: str | None, if_range: str | None, etag: str) -> bool:
    """Whether the request may be for a part, so that the file's size must be known.

    With `If-Range`, only if that is the file's own strong etag. For another etag or a date the
    answer is the whole file (RFC 9110, 13.1.5).
    """
    if range_field is None or not _RANGE.fullmatch(range_field):
        return False
    return if_range is None or if_range.strip() == etag


def is_later_part(range_field: str | None, if_range: str | None, etag: str) -> bool:
    """True if the answer cannot include the file's first byte.

    A range of the last bytes may be all of them, so it is not a later part.
    """
    if range_field is None or not wants_range(range_field, if_range, etag):
        return False
    match = _RANGE.fullmatch(range_field)
    first, last = match.groups() if match else ("", "")
    return first != "" and int(first) > 0 and (last == "" or int(first) <= int(last))


def parse_range(range_field: str, size: int) -> ByteRange | None:
    """The requested part of a file of `size` bytes, None for all of it. Raises RangeUnsatisfiable.

    Several ranges, other units and invalid ranges are ignored, as RFC 9110, 14.2 allows.
    """
    match = _RANGE.fullmatch(range_field)
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:  # the last bytes
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= min(stop, size):
        raise RangeUnsatisfiable
    return ByteRange(start, stop)
