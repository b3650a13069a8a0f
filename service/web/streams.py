"""Streamed responses."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

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
