"""Requests to identity providers: bounded in time and size, without redirects."""

import asyncio
from collections.abc import Mapping
from typing import Final, TypeVar

import httpx2
import msgspec
import structlog

from service.core.errors import ProviderUnavailable

ANSWER_S: Final = 5.0
"""Time limit of a response, to its last byte."""

ANSWER_BYTES_MAX: Final = 100 * 1024
# A compressed response could be small on the wire and large in memory.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}

_log = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")


async def ask(
    http: httpx2.AsyncClient,
    kind: type[_Answer],
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    statuses: frozenset[int] = frozenset({200}),
) -> _Answer:
    """GET `url`, or POST `form` to it, and parse the JSON response as a `kind`.

    Raises ProviderUnavailable, also for a status that is not in `statuses`.
    """
    try:
        # For the whole request: a slow server could stay below the timeout of each single read.
        async with asyncio.timeout(ANSWER_S):
            status, body = await _fetch(http, url, form, {**_HEADERS, **(headers or {})})
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise unavailable(url, type(error).__name__) from error
    if status not in statuses:
        raise unavailable(url, f"answered {status}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unavailable(url, "did not answer in the JSON expected") from error


def unavailable(url: str, reason: str) -> ProviderUnavailable:
    """Log `reason`; return the refusal to raise."""
    _log.warning("identity_provider_unavailable", url=url, reason=reason)
    return ProviderUnavailable()


async def _fetch(
    http: httpx2.AsyncClient,
    url: str,
    form: Mapping[str, str] | None,
    headers: Mapping[str, str],
) -> tuple[int, bytes]:
    method = "GET" if form is None else "POST"
    async with http.stream(
        method, url, data=form, headers=headers, follow_redirects=False, timeout=ANSWER_S
    ) as response:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("packed", request=response.request)
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx2.DecodingError("too long", request=response.request)
        return response.status_code, bytes(body)
