"""Follows a file to its last byte, so that a transfer that ends early is recorded."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from analytics.model.envelopes import CutCause
from service.errors import NotAsDocumented, UpstreamFailed

OnCut = Callable[[int, CutCause], None]
"""Called with the number of bytes that were sent, and why no more were."""

Recorder = Callable[[str | None], Awaitable[OnCut]]
"""Records the install of a file with this SHA-256 (None: not known yet) before its first byte.

The result is called if the file does not arrive.
"""


async def followed(
    pieces: AsyncGenerator[bytes, None], size: Callable[[], int | None], on_cut: OnCut
) -> AsyncGenerator[bytes, None]:
    """`pieces`; `on_cut` is called if they fail or are abandoned before all of `size` is sent.

    Bytes count as sent when the next piece is asked for: the connection has taken them by then.
    """
    given = sent = 0
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                given += len(piece)
                yield piece
                sent = given
    except (GeneratorExit, asyncio.CancelledError):
        # A client may close the connection as soon as it has the last byte.
        if given != size():
            on_cut(sent, "connection_closed")
        raise
    except Exception as error:
        on_cut(sent, _cause_of(error))
        raise


def _cause_of(error: Exception) -> CutCause:
    if isinstance(error, NotAsDocumented):
        return "digest_mismatch"
    return "upstream_failed" if isinstance(error, UpstreamFailed) else "storage_failed"
