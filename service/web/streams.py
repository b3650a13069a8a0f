"""Answers that are sent piece by piece."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

_Piece = TypeVar("_Piece", str, bytes)


async def begun(pieces: AsyncGenerator[_Piece, None]) -> AsyncIterator[_Piece]:
    """`pieces`, of which the first is made before this returns.

    So what cannot even begin is refused with a status. And what has begun comes to its end,
    whatever it holds is freed, also when its client is gone before the first piece is sent.
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
