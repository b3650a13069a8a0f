"""Serves the file of a package: whole, in part, or its headers alone."""

from collections.abc import AsyncIterator
from typing import Final

from quart import Request, Response

from service.proxy.cached_file import CachedFile, LoadedFile
from service.proxy.downloads import Admit, DownloadReader
from service.proxy.file_cache import FileCache
from service.proxy.file_keys import FileKey
from service.proxy.ranges import RangeUnsatisfiable, is_later_part, parse_range, wants_range
from service.web.header_names import API_KEY_HEADER
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
    request: Request, files: FileCache, key: FileKey, size: int | None, admit: Admit
) -> Response:
    """The file with this digest, or the requested part of it.

    Raises UpstreamMissing, UpstreamFailed and StoreUnavailable before the first byte; a later
    failure breaks the connection.
    """
    headers = {
        "etag": key.etag,
        "accept-ranges": "bytes",
        # Clients ask again each time: what is allowed may change at any moment.
        "cache-control": "private, no-cache",
        "vary": f"authorization, {API_KEY_HEADER}",
    }
    if is_known(request, key):
        return Response(status=304, headers=headers)
    if request.method == "HEAD" and size is not None:
        return _answer(b"", 200, headers | {"content-length": str(size)})
    opened = files.loaded(key, size) or await _opened(files, key, size, admit)
    asked = request.headers.get("range")
    if wants_range(asked, request.headers.get("if-range"), key.etag) and asked is not None:
        return await _part(request, await _whole(opened), asked, headers)
    if opened.size is not None:
        headers["content-length"] = str(opened.size)
    if request.method == "HEAD":
        await opened.close()
        return _answer(b"", 200, headers)
    if isinstance(opened, DownloadReader):
        return _answer(await begun(opened.pieces()), 200, headers)
    return _answer(await _body(opened, 0, opened.size), 200, headers)


async def _opened(
    files: FileCache, key: FileKey, size: int | None, admit: Admit
) -> CachedFile | LoadedFile | DownloadReader:
    opened = await files.open(key, size, admit)
    return await files.load(key, opened) if isinstance(opened, CachedFile) else opened


async def _whole(opened: CachedFile | LoadedFile | DownloadReader) -> CachedFile | LoadedFile:
    return await opened.complete() if isinstance(opened, DownloadReader) else opened


async def _body(
    file: CachedFile | LoadedFile, start: int, stop: int
) -> bytes | AsyncIterator[bytes]:
    if isinstance(file, LoadedFile):
        return file.part(start, stop)
    return await begun(file.pieces(start, stop))


async def _part(
    request: Request, file: CachedFile | LoadedFile, asked: str, headers: dict[str, str]
) -> Response:
    try:
        part = parse_range(asked, file.size)
    except RangeUnsatisfiable:
        await file.close()
        return _answer(b"", 416, headers | {"content-range": f"bytes */{file.size}"})
    start, stop = (0, file.size) if part is None else (part.start, part.stop)
    headers |= {"content-length": str(stop - start)}
    if part is not None:
        headers |= {"content-range": part.content_range(file.size)}
    status = 200 if part is None else 206
    if request.method == "HEAD":
        await file.close()
        return _answer(b"", status, headers)
    return _answer(await _body(file, start, stop), status, headers)


def _answer(body: bytes | AsyncIterator[bytes], status: int, headers: dict[str, str]) -> Response:
    response = Response(body, status=status, content_type=_TYPE)
    for name, value in headers.items():
        response.headers[name] = value
    # Only the connection's own limits apply: a download may take as long as it makes progress.
    response.timeout = None
    return response
