"""Serves the file of a package: whole, in part, or its headers alone."""

from collections.abc import AsyncIterator
from typing import Final

from quart import Request, Response

from service.core.header_names import API_KEY_HEADER
from service.packages.proxy.cached_file import CachedFile, LoadedFile
from service.packages.proxy.downloads import Admit, DownloadReader
from service.packages.proxy.file_cache import FileCache
from service.packages.proxy.file_keys import CacheKey, FileKey
from service.packages.proxy.ranges import (
    RangeUnsatisfiable,
    is_later_part,
    parse_range,
    wants_range,
)
from service.packages.proxy.transfers import Recorded, Recorder, followed, recorded
from service.web.streams import begun

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
        return await _part(request, await _whole(opened), asked, headers, record)
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
) -> CachedFile | LoadedFile | DownloadReader:
    opened = await files.open(key, size, admit)
    return await files.load(key, opened) if isinstance(opened, CachedFile) else opened


async def _whole(opened: CachedFile | LoadedFile | DownloadReader) -> CachedFile | LoadedFile:
    return await opened.complete() if isinstance(opened, DownloadReader) else opened


async def _recorded(
    opened: CachedFile | LoadedFile | DownloadReader, record: Recorder | None
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
    file: CachedFile | LoadedFile, start: int, stop: int, install: Recorded | None
) -> bytes | AsyncIterator[bytes]:
    if isinstance(file, LoadedFile):
        return file.part(start, stop)  # one piece: whether it arrived cannot be seen
    pieces = file.pieces(start, stop)
    if install is not None:
        pieces = followed(pieces, lambda: stop - start, install)
    return await begun(pieces)


async def _part(
    request: Request,
    file: CachedFile | LoadedFile,
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
