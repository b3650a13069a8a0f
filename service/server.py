"""Serving: one event loop in each process, and a graceful end."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
import uvloop
from quart import Quart

from analytics.model.errors import StoreFault
from service import hypercorn_server
from service.app import create_app
from service.bootstrap import prepare
from service.composition import EXTENSION, Services
from service.errors import Refusal
from service.exit_codes import exit_code
from service.hypercorn_server import ServerConfig
from service.issuers.issuers import load_issuers
from service.logs import configure_logs
from service.proxy.registries_file import load_registries
from service.settings import InvalidSetting, Settings
from service.sign_in.providers import load_providers
from service.supervisor import Supervisor

HEADER_BYTES_MAX: Final = 64 * 1024
SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that computes keeps the event loop waiting. Python's 5 ms would be waited for
at each of a dozen steps of a request while rows are taken in."""

_log = structlog.get_logger(__name__)


def serve(settings: Settings, listener: socket.socket | None = None) -> int:
    """Prepare the data dir and serve (on `listener`, if given) until SIGTERM or SIGINT.

    On a signal no new request is taken; those in flight have `shutdown_grace_s` to finish. Answers
    with the exit code. Raises InvalidSetting when the address is taken, or is none of this
    machine's.
    """
    configure_logs(settings.log_level)
    with listener or listen(settings.host, settings.port) as held:
        ready = asyncio.run(prepare(settings))
        if ready.workers == 1:
            serve_alone(ready, held)
            return 0
        # Else each process would report a fault in them, in the log alone.
        load_issuers(ready.issuers_file)
        load_providers(ready)
        load_registries(ready.proxy_registries_file)
        return Supervisor(
            partial(_serve_as_one, ready, held), ready.workers, ready.shutdown_grace_s
        ).run()


def serve_alone(settings: Settings, listener: socket.socket) -> None:
    """Serve in this process; `settings` are those of a data dir that is prepared."""
    _run(settings, listener, is_first=True, on_serving=lambda: None)


def _serve_as_one(
    settings: Settings, listener: socket.socket, number: int, on_serving: Callable[[], object]
) -> None:
    """Serve in one of several processes. The first does the maintenance."""
    configure_logs(settings.log_level)
    try:
        _run(settings, listener, is_first=number == 0, on_serving=on_serving)
    except (InvalidSetting, Refusal, StoreFault, OSError) as error:
        _log.error("cannot_serve", number=number, reason=str(error))
        sys.exit(exit_code(error))


def _run(
    settings: Settings,
    listener: socket.socket,
    *,
    is_first: bool,
    on_serving: Callable[[], object],
) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(_serve(settings, listener, is_first=is_first, on_serving=on_serving))


async def _serve(
    settings: Settings,
    listener: socket.socket,
    *,
    is_first: bool,
    on_serving: Callable[[], object],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = create_app(settings, is_first=is_first)
    # Objects that exist by now live as long as the process. To look through them again every
    # hundred batches of rows or so takes the garbage collector 80 ms, in which no request runs.
    gc.collect()
    gc.freeze()
    _log.info("serving", host=settings.host, port=settings.port, data_dir=str(settings.data_dir))
    on_serving()
    await _answer(app, listener, settings, stop)
    gc.unfreeze()  # else libraries report at exit that their objects were never released
    _log.info("stopped")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the address; connections wait until the server accepts them.

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
        services: Services = app.extensions[EXTENSION]
        services.live.end()  # else these streams would use up the grace

    await hypercorn_server.serve(app, config, stopped, settings.shutdown_grace_s)
