"""JSON responses, and those that are streamed."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec
from quart import Response

JSON_TYPE = "application/json"

PART_ENTRIES: Final = 1_000
"""Entries that are encoded at once: no other thread runs meanwhile."""


def json_answer(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any JSON
    """`value` as the body of a JSON response."""
    return Response(msgspec.json.encode(value), status=status, content_type=JSON_TYPE)


def encoded(value: Any) -> msgspec.Raw:  # noqa: ANN401 - any JSON
    """`value` as part of a JSON response, encoded now: long answers are encoded in parts."""
    return msgspec.Raw(msgspec.json.encode(value))


def encoded_list(entries: Sequence[object]) -> msgspec.Raw:
    """As `encoded`, of a list of any length; in parts."""
    parts = range(0, len(entries), PART_ENTRIES)
    encode = msgspec.json.encode
    inner = (encode(entries[start : start + PART_ENTRIES])[1:-1] for start in parts)
    return msgspec.Raw(b"[" + b",".join(inner) + b"]")


def error_answer(text: str, status: int) -> Response:
    """An error response, `{"error": text}`: the same shape for every error."""
    body = json.dumps({"error": text}, ensure_ascii=False, separators=(",", ":"))
    # `text` may repeat a lone surrogate from a client: UTF-8 cannot encode it, JSON can escape it.
    return Response(body.encode(errors="backslashreplace"), status=status, content_type=JSON_TYPE)


_Piece = TypeVar("_Piece", str, bytes)


async def begun(pieces: AsyncGenerator[_Piece, None]) -> AsyncIterator[_Piece]:
    """`pieces`, of which the first is produced before this returns.

    So a failure at the start still gets an error status. A stream that has started is always
    closed and its resources freed, even if the client disconnects before the first piece is sent.
    """
    return _from(await anext(pieces, None), pieces)


async def _from(
    first: _Piece | None, others: AsyncGenerator[_Piece, None]
) -> AsyncIterator[_Piece]:
    async with aclosing(others):
        if first is not None:
            yield first
        async for piece in others:
            yield piece
