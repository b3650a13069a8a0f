"""A process that serves one file of a package, until it is killed at a step it was told."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION
from service.app.logs import configure_logs
from service.core.settings import Settings
from service.packages.refusals import NotAsDocumented
from tests.power import at, watched_steps
from tests.replaced import replaced


class Order(msgspec.Struct):
    """What to serve, to whom, by which clock, and the step not to take any more."""

    settings: Settings
    now: datetime
    path: str
    secret: str
    last: dict[str, Any]


async def obey(order: Order) -> None:
    """Serve the file to standard output, as the server would send it: piece by piece."""
    configure_logs("error")  # to standard error
    is_last = at(**order.last)
    app = create_app(order.settings, lambda: order.now, jobs=seal_jobs)
    write = os.pwrite

    def on_step(step: str) -> None:
        if is_last(step):
            os.kill(os.getpid(), signal.SIGKILL)

    def writing(*arguments: Any) -> int:
        on_step("pwrite")
        return write(*arguments)

    serve: Callable[..., Any] = app.asgi_app

    async def observed(scope: Any, receive: Any, send: Any) -> None:
        async def pass_on(message: Any) -> None:
            if message["type"] == "http.response.body":
                on_step("send")
                os.write(1, message.get("body", b""))
            await send(message)

        await serve(scope, receive, pass_on)

    app.asgi_app = observed  # type: ignore[method-assign]
    services = app.extensions[EXTENSION]
    with replaced((os, "pwrite", writing)), watched_steps(services.store, on_step):
        headers = {"x-service-api-key": order.secret}
        with suppress(NotAsDocumented):
            await app.test_client().get(order.path, headers=headers)
        await services.proxy.installs.close()
        await services.packages.files.close()
        on_step("END")
    await services.close()


if __name__ == "__main__":
    given = msgspec.json.decode(
        sys.argv[1], type=Order, dec_hook=lambda kind, value: kind(value) if kind is Path else value
    )
    asyncio.run(obey(given))
