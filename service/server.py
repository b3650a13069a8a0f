"""Serving: one process, one event loop, a graceful end."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from typing import Final

import structlog
import uvloop
from quart import Quart

from service import hypercorn_server
from service.app import create_app
from service.bootstrap import prepare
from service.composition import EXTENSION, Services
from service.hypercorn_server import ServerConfig
from service.logs import configure_logs
from service.settings import InvalidSetting, Settings

HEADER_BYTES_MAX: Final = 64 * 1024
SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that computes keeps the event loop waiting. Python's 5 ms would be waited for
at each of a dozen steps of a request while rows are taken in."""

_log = structlog.get_logger(__name__)


def serve(settings: Settings, listener: socket.socket | None = None) -> None:
    """Prepare the data dir and serve (on `listener`, if given) until SIGTERM or SIGINT.

    On a signal no new request is taken; those in flight have `shutdown_grace_s` to finish.
    Raises InvalidSetting when the address is taken, or is none of this machine's.
    """
    configure_logs(settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with listener or listen(settings.host, settings.port) as held:
        uvloop.run(_serve(settings, held))


async def _serve(settings: Settings, listener: socket.socket) -> None:
    ready = await prepare(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = create_app(ready)
    # What is there by now stays, and is most of what there ever is. To look through it again every
    # hundred batches of rows or so takes the garbage collector 80 ms, in which nobody is answered.
    gc.collect()
    gc.freeze()
    _log.info("serving", host=ready.host, port=ready.port, data_dir=str(ready.data_dir))
    await _answer(app, listener, ready, stop)
    gc.unfreeze()  # or libraries complain at the very end about what nobody took away
    _log.info("stopped")


def listen(host: str, port: int) -> socket.socket:
    """A socket that holds the address; who connects waits until somebody serves there.

    Taken before anything else is begun, so that a wrong address costs no work. To bind alone would
    not hold it: with SO_REUSEADDR, another process may bind the same address and listen first.
    Raises InvalidSetting.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except (OSError, UnicodeError) as error:  # the latter for what can be no host name
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise InvalidSetting(f"cannot listen on {host}:{port}: {reason}") from error
    return listener


async def _answer(
    app: Quart, listener: socket.socket, settings: Settings, stop: asyncio.Event
) -> None:
    config = ServerConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    config.accesslog = None
    config.keep_alive_timeout = settings.keep_alive_s
    config.send_timeout_s = settings.send_timeout_s
    # Room for a CI token of the greatest length, and for the other headers beside it.
    config.h11_max_incomplete_size = HEADER_BYTES_MAX

    async def stopped() -> None:
        await stop.wait()
        here: Services = app.extensions[EXTENSION]
        here.live.end()  # nobody else ends these streams, and they would use up the grace

    await hypercorn_server.serve(app, config, stopped, settings.shutdown_grace_s)
