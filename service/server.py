"""Serving: one process, one event loop, a graceful end."""

import asyncio
import signal

import structlog
import uvloop
from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config
from quart import Quart

from service.app import create_app
from service.logs import configure_logs
from service.prepare import prepare
from service.settings import Settings

_log = structlog.get_logger(__name__)


def serve(settings: Settings) -> None:
    """Prepare the data dir and serve until SIGTERM or SIGINT.

    On a signal no new request is taken; those in flight have `shutdown_grace_s` to finish.
    """
    configure_logs(settings.log_level)
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    ready = await prepare(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = create_app(ready)
    _log.info("serving", host=ready.host, port=ready.port, data_dir=str(ready.data_dir))
    await _listen(app, ready, stop)
    _log.info("stopped")


async def _listen(app: Quart, settings: Settings, stop: asyncio.Event) -> None:
    config = Config()
    config.bind = [f"{settings.host}:{settings.port}"]
    config.graceful_timeout = settings.shutdown_grace_s
    config.include_server_header = False
    config.errorlog = "-"
    config.accesslog = None

    async def stopped() -> None:
        await stop.wait()

    await hypercorn_serve(app, config, shutdown_trigger=stopped)
