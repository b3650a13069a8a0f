"""The service with a heartbeat: `/heartbeat` begins it, and asked again ends it and has the result.

The result is how long the event loop was blocked at most. Without a heartbeat nothing is measured
and nothing is spent.
"""

import asyncio
import time
from typing import Any, Final

from quart import Quart

from service.app import server
from service.app.application import create_app
from service.cli.main import main

BEAT_S: Final = 0.001


class Heartbeat:
    """Beats in an event loop, and keeps its longest pause."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._beating: asyncio.Task[None] | None = None

    def toggle(self) -> dict[str, float]:
        """Begin to beat, or end; the longest pause in milliseconds."""
        if self._beating is None:
            self._longest_s = 0.0
            self._beating = asyncio.create_task(self._beat())
        else:
            self._beating.cancel()
            self._beating = None
        return {"longest_ms": self._longest_s * 1000}

    async def _beat(self) -> None:
        """Beat until it is cancelled.

        A pause counts for as long as this process computed during it: other processes of the
        machine must not count, and all that holds the interpreter's lock must.
        """
        while True:
            began_at, computed_s = time.perf_counter(), time.process_time()
            await asyncio.sleep(BEAT_S)
            paused_s = time.perf_counter() - began_at - BEAT_S
            computed_s = time.process_time() - computed_s
            self._longest_s = max(self._longest_s, min(paused_s, computed_s))


def _with_heartbeat(*arguments: Any, **options: Any) -> Quart:  # noqa: ANN401 - passed on
    app, heartbeat = create_app(*arguments, **options), Heartbeat()

    @app.get("/heartbeat")
    async def show() -> dict[str, float]:
        return heartbeat.toggle()

    return app


if __name__ == "__main__":
    server.create_app = _with_heartbeat
    main()
