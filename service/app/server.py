"""Serving: one event loop in each process, and a graceful end."""

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from multiprocessing import set_forkserver_preload
from typing import Final

import structlog
import uvloop
from quart import Quart

from analytics.model.errors import StoreFault
from service.access.sign_in.providers import load_providers
from service.app import hypercorn_server
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.collector import begin_collecting, collect_when_quiet
from service.app.composition import EXTENSION, Services
from service.app.hypercorn_server import ServerConfig
from service.app.logs import configure_logs
from service.app.maintenance_process import SealSignal, background_work
from service.app.process_end import KILL_AFTER_S, end_after, end_now, ignore_signals, on_signals
from service.app.supervisor import Supervisor
from service.app.watchdog import Serving, end_when_stalled
from service.ci.issuers.issuers import load_issuers
from service.core.errors import Refusal, StoreUnavailable
from service.core.exit_codes import exit_code
from service.core.request_context import is_trusted
from service.core.settings import InvalidSetting, Settings
from service.packages.proxy.registries_file import load_registries
from service.store.faults import is_outage

HEADER_BYTES_MAX: Final = 64 * 1024
SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that computes keeps the event loop waiting. Python's 5 ms would be waited for
at each of a dozen steps of a request while rows are taken in."""

RETRY_S: Final = 1.0
"""How long after a failed start the next one begins."""

REQUEST_S: Final = 5.0
"""How long a request may take to arrive while there is nothing to serve it."""

_log = structlog.get_logger(__name__)


def serve(settings: Settings, listener: socket.socket | None = None) -> int:
    """Prepare the data dir and serve (on `listener`, if given) until SIGTERM or SIGINT.

    On a signal no new request is taken; those in flight have `shutdown_grace_s` to finish, and
    KILL_AFTER_S later the process has ended. While the database does not answer at the start, it is
    waited for. Returns the exit code: that of a stop by a signal is 0 at any time. Raises
    InvalidSetting when the address is taken, or is none of this machine's.
    """
    configure_logs(settings.log_level)
    on_signals(_leave)
    with listener or listen(settings.host, settings.port) as held:
        ready = asyncio.run(_prepare(settings, held))
        # Otherwise each process would report a fault in them, and only in the log.
        load_issuers(ready.issuers_file)
        load_providers(ready)
        load_registries(ready.proxy_registries_file)
        set_forkserver_preload(["service.app.preloaded"])
        seal_signal = SealSignal()
        supervisor = Supervisor(
            partial(_serve_as_one, ready, held, seal_signal),
            0 if ready.workers == 1 else ready.workers,
            ready.shutdown_grace_s,
            ready.stall_s,
            background_work(ready, seal_signal),
        )
        if ready.workers == 1:
            _serve_alone(ready, held, seal_signal, supervisor)
            end_now()
        code = supervisor.run()
        ignore_signals()
        return code


async def _prepare(settings: Settings, listener: socket.socket) -> Settings:
    """As `prepare`, repeated during an outage of the database; requests get 503 meanwhile.

    Otherwise a node that is started during an outage would not serve after it.
    """
    async with AsyncExitStack() as stack:
        is_answered = False
        while True:
            try:
                return await prepare(settings)
            except StoreUnavailable as fault:
                if not is_outage(fault):
                    raise
                _log.warning("start_waits_for_database", reason=fault.reason, try_again_s=RETRY_S)
            if not is_answered:
                await stack.enter_async_context(_unavailable(listener))
                is_answered = True
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def _unavailable(listener: socket.socket) -> AsyncIterator[None]:
    """Answer every request at `listener` with 503 in the block."""
    answering: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer_503(reader, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)

    async with await asyncio.start_server(begin, sock=listener.dup()):
        yield
    if answering:
        await asyncio.wait(answering, timeout=REQUEST_S)


async def _answer_503(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = f'{{"error":"{StoreUnavailable.text}"}}'
    answer = (
        f"HTTP/1.1 {StoreUnavailable.status} Service Unavailable\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"retry-after: {StoreUnavailable.retry_after_s}\r\nconnection: close\r\n\r\n{body}"
    )
    try:
        async with asyncio.timeout(REQUEST_S):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer.encode())
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        _log.debug("request_not_answered", reason=str(error))
    finally:
        writer.close()


def _leave(*_: object) -> None:
    """Stop before anything is served: what is under way is rolled back."""
    ignore_signals()
    end_after(KILL_AFTER_S)
    sys.exit(0)


def _serve_alone(
    settings: Settings, listener: socket.socket, seal_signal: SealSignal, supervisor: Supervisor
) -> None:
    """Serve in this process, with others only for the background."""
    serving = Serving()
    with supervisor.in_thread("0", listener):
        end_when_stalled(serving.turns, settings.stall_s)
        _run(settings, listener, seal_signal, serving, supervisor.stop)
    _log.info("stopped")  # after what the background had to finish, and to log


def _serve_as_one(
    settings: Settings,
    listener: socket.socket,
    seal_signal: SealSignal,
    number: int,
    serving: Serving,
) -> None:
    """Serve in one of several processes."""
    configure_logs(settings.log_level)
    try:
        _run(settings, listener, seal_signal, serving)
    except (InvalidSetting, Refusal, StoreFault, OSError) as error:
        _log.error("cannot_serve", number=number, reason=str(error))
        sys.exit(exit_code(error))
    _log.info("stopped")


def _run(
    settings: Settings,
    listener: socket.socket,
    seal_signal: SealSignal,
    serving: Serving,
    on_stop: Callable[[], object] = lambda: None,
) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(_serve(settings, listener, seal_signal, serving, on_stop))


async def _serve(
    settings: Settings,
    listener: socket.socket,
    seal_signal: SealSignal,
    serving: Serving,
    on_stop: Callable[[], object],
) -> None:
    """Serve until a signal, of which `on_stop` is told."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    end_s = settings.shutdown_grace_s + KILL_AFTER_S

    def begin_stop() -> None:
        if not stop.is_set():
            stop.set()
            end_after(end_s)
            on_stop()

    # Not the loop's own handlers: it resets them when it ends, and the next signal would kill.
    on_signals(lambda *_: loop.call_soon_threadsafe(begin_stop))
    app = create_app(settings, jobs=lambda _: [])
    begin_collecting()
    serving()
    services: Services = app.extensions[EXTENSION]
    tasks = [
        asyncio.create_task(serving.turns.keep_counting(services.metrics.loop_pauses.observe)),
        asyncio.create_task(collect_when_quiet()),
        asyncio.create_task(seal_signal.forward(services.sealer.wanted)),
    ]
    try:
        await _answer(app, listener, settings, stop)
    except Exception:
        if not stop.is_set():
            raise
        # Such as a database that does not answer: nothing that was acknowledged is lost by it.
        _log.exception("stop_incomplete")
    finally:
        ignore_signals()
        for task in tasks:
            task.cancel()
        serving.turns.reset()  # the loop ends, and does not stall
    gc.unfreeze()  # else libraries report at exit that their objects were never released


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
    config.head_timeout_s = settings.head_timeout_s
    config.connections_max = settings.connections_max
    config.connections_per_address_max = settings.connections_per_address_max
    config.is_trusted_proxy = partial(is_trusted, trusted_proxies=settings.trusted_proxies)
    services: Services = app.extensions[EXTENSION]
    config.loop_turns = services.loop_turns
    # Room for a CI token of the greatest length, and for the other headers beside it.
    config.h11_max_incomplete_size = HEADER_BYTES_MAX

    async def stopped() -> None:
        # Awaited as soon as connections are accepted.
        place = str(settings.data_dir)
        _log.info("serving", host=settings.host, port=settings.port, data_dir=place)
        await stop.wait()
        services.live.end()  # else these streams would use up the grace

    await hypercorn_server.serve(app, config, stopped, settings.shutdown_grace_s)
