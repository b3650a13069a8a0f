"""Follows a file to its last byte, so that a transfer that ends early is recorded."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol

from analytics.model.envelopes import CutCause
from service.core.errors import NotAsDocumented, UpstreamFailed


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
