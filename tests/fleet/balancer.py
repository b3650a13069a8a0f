"""A round-robin balancer: each new connection goes to the next node that accepts one."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final

_CHUNK: Final = 64 * 1024
_CONNECT_MAX_S: Final = 2.0


class Balancer:
    """Listens on a port of 127.0.0.1 and passes bytes on to `ports`, in a thread of its own.

    It knows nothing of HTTP: requests of one connection stay at one node. A connection for which
    no node is left is closed at once.
    """

    def __init__(self, ports: Sequence[int], port: int = 0) -> None:
        self._ports = list(ports)
        self._next = count()
        self._serving: set[asyncio.Task[None]] = set()
        """Held here: the event loop alone would let a waiting task be collected as garbage."""
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._begin, "127.0.0.1", port)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        # Repeatedly: a connection that was just accepted becomes a task a moment later.
        while serving := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0.1)  # what was closed is closed in the loop's next round

    def _begin(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(client, answer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        try:
            node = await self._connect()
            if node is None:
                return
            replies, requests = node
            sending = asyncio.create_task(_pass_on(client, requests))
            try:
                await _pass_on(replies, answer)
            finally:
                sending.cancel()
                requests.close()
        finally:
            answer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next node in turn that accepts one; None if there is none."""
        first = next(self._next)
        for offset in range(len(self._ports)):
            port = self._ports[(first + offset) % len(self._ports)]
            with suppress(OSError):
                async with asyncio.timeout(_CONNECT_MAX_S):
                    return await asyncio.open_connection("127.0.0.1", port)
        return None


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass on all that `source` sends, and that it has ended, or that it is gone."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
    with suppress(OSError):
        target.write_eof()
