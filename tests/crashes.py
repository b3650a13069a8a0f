"""Operations that end at a chosen step: the power goes, the process is killed, the disk is full.

A step is a file that is synced, renamed, replaced, linked, removed, or gets another time of
writing, a new folder, a statement of a writer or a commit; its name is the function's, the
statement's text or `COMMIT`. Requests that change a bucket are steps too: `put object` and
`delete object`. Run as a module, this works on a data dir until it is killed.
"""

import asyncio
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import obstore
import pytest
from sqlalchemy import event, select

from analytics.imports.chunks import FileKind, ImportFormat
from service.access.callers import cli_caller
from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION, Services, build_services
from service.app.logs import configure_logs
from service.audit.backup.segment_restore import SegmentRestore, choose_segments, open_sources
from service.audit.importer import ImportFile, ImportJob, ImportWatch
from service.audit.upload import upload_segments
from service.core.settings import Settings
from service.packages.policy.blocklist import BlocklistImporter
from service.packages.refusals import NotAsDocumented
from service.store.database_copy import copy_all
from service.store.engine_factory import create_engines
from service.store.organisations import get_org
from service.store.store import Store
from service.store.tables import Stream
from tests.databases import DirectTransaction
from tests.interpreters import run_module
from tests.replaced import replaced

Last = Callable[[str], bool]
"""Says of each step, in order, whether it is the one that does not happen any more."""

OnStep = Callable[[str], None]
FileCall = Callable[[str, tuple[Any, ...], Callable[[], Any]], Any]
"""Makes a call, given its name, its arguments and what makes it."""

_STEPS_OF_FILES: Final = (
    *((os, name, name) for name in ("fsync", "utime")),
    *((Path, name, name) for name in ("rename", "replace", "unlink", "mkdir")),
    (Path, "hardlink_to", "link"),
    *((obstore, name, f"{name} object") for name in ("put", "delete")),
)


class PowerCut(BaseException):
    """The process ends here."""


class Order(msgspec.Struct):
    """What to do, by which clock, and the step not to take any more (see `at`)."""

    settings: Settings
    now: datetime
    work: str
    last: dict[str, Any]
    headers: dict[str, str] = {}


def at(beginning: str, number: int = 1, *, after: str = "") -> Last:
    """The `number`th step that begins so, counted from the first one that begins with `after`."""
    is_counting = False
    left = number

    def is_last(step: str) -> bool:
        nonlocal is_counting, left
        is_counting = is_counting or step.startswith(after)
        left -= is_counting and step.startswith(beginning)
        return left == 0

    return is_last


@contextmanager
def power_cut(store: Store, is_last: Last) -> Iterator[None]:
    """From `is_last` on nothing reaches the disk or the database: each step raises PowerCut."""
    has_power = True

    def on_step(step: str) -> None:
        nonlocal has_power
        has_power = has_power and not is_last(step)
        if not has_power:
            raise PowerCut

    with watched_steps(store, on_step):
        yield


def power_cut_after(steps: int, store: Store) -> AbstractContextManager[None]:
    """As `power_cut`, once `steps` more steps have happened, whichever they are."""
    return power_cut(store, at("", steps + 1))


@contextmanager
def full_disk(is_full: Last) -> Iterator[None]:
    """From `is_full` on the steps of files fail, except that files can be removed."""
    has_room = True

    def fail(name: str, _: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        nonlocal has_room
        has_room = has_room and not is_full(name)
        if not has_room and name not in {"unlink", "utime"}:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call()

    with file_calls(fail):
        yield


@contextmanager
def file_calls(around: FileCall) -> Iterator[None]:
    """Have `around` make every call in the block that is a step of a file or of a bucket."""

    def calling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            return around(name, arguments, lambda: function(*arguments, **options))

        return run

    with replaced(
        *(
            (owner, member, calling(name, getattr(owner, member)))
            for owner, member, name in _STEPS_OF_FILES
        )
    ):
        yield


@contextmanager
def watched_steps(store: Store, on_step: OnStep) -> Iterator[None]:
    """Call `on_step` before each step in the block."""
    one_by_one = threading.Lock()  # files are synced in several threads

    def stepping(name: str, _: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        with one_by_one:
            on_step(name)
        return call()

    def on_statement(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        on_step(statement)

    def on_commit(_: object) -> None:
        on_step("COMMIT")

    execute = DirectTransaction.execute

    def stepping_execute(transaction: DirectTransaction, sql: str, *values: Any) -> Any:
        on_step(sql)
        return execute(transaction, sql, *values)

    writer = store._engines.writer.sync_engine
    event.listen(writer, "before_cursor_execute", on_statement)
    event.listen(writer, "commit", on_commit)
    try:
        with replaced((DirectTransaction, "execute", stepping_execute)), file_calls(stepping):
            yield
    finally:
        event.remove(writer, "before_cursor_execute", on_statement)
        event.remove(writer, "commit", on_commit)


@dataclass
class FileSteps:
    """The file calls that were made, in order: (what, path as it was called then)."""

    steps: list[tuple[str, Path]] = field(default_factory=list)
    synced_bytes: dict[Path, int] = field(default_factory=dict)

    def index(self, what: str, path: Path) -> int:
        """Where in the order this step stands; fails if it was never taken."""
        assert (what, path) in self.steps, f"no {what} of {path} among {self.steps}"
        return self.steps.index((what, path))

    def made(self) -> list[Path]:
        """The directories that were created, in order."""
        return [path for what, path in self.steps if what == "mkdir"]

    def call(self, name: str, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Make a call and record it, if it is a sync, a new name or a new folder."""
        if name not in {"fsync", "rename", "replace", "link", "mkdir"}:
            return call()
        path = arguments[name in {"rename", "replace"}]
        if name == "fsync":
            path = Path(f"/proc/self/fd/{path}").readlink()
        is_new = name != "mkdir" or not path.exists()
        result = call()
        if name == "fsync":
            self.synced_bytes[path] = path.stat().st_size
        if is_new:
            self.steps.append(("rename" if name == "replace" else name, path))
        return result


@pytest.fixture
def file_steps() -> Iterator[FileSteps]:
    """Records every fsync, rename, link and mkdir from here on; each still happens."""
    record = FileSteps()
    with file_calls(record.call):
        yield record


async def kill_process(
    settings: Settings,
    now: datetime,
    work: str,
    beginning: str,
    number: int = 1,
    *,
    after: str = "",
    content: bytes = b"",
) -> None:
    """Do `work` in a real process that is really killed, see `at`."""
    given = order_for(settings, now, work, beginning, number, after=after)
    killed = await asyncio.to_thread(run_module, "tests.crashes", given, input=content)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


def order_for(
    settings: Settings,
    now: datetime,
    work: str,
    beginning: str,
    number: int = 1,
    *,
    after: str = "",
    headers: dict[str, str] | None = None,
) -> str:
    """The argument of this module."""
    last = {"beginning": beginning, "number": number, "after": after}
    order = Order(settings, now, work, last, headers or {})
    return msgspec.json.encode(order, enc_hook=str).decode()


async def import_file(services: Services) -> None:
    """The NDJSON on standard input, into acme."""
    content = sys.stdin.buffer.read()
    async with services.store.read() as session:
        org = await get_org(session, "acme")
    kind = FileKind(ImportFormat.NDJSON)
    source = ImportFile("audit.ndjson", io.BytesIO(content), len(content), kind)
    job = ImportJob(org, source, cli_caller("org_platform").audit_context, is_partial=False)
    await services.importer.take(job, ImportWatch(lambda _: None, lambda _: None), 0.0)


async def import_blocklist(services: Services) -> None:
    """The zip of OSV records on standard input."""
    importer = BlocklistImporter(services.store)
    content = io.BytesIO(sys.stdin.buffer.read())
    by = cli_caller("org_platform").audit_context
    await importer.import_file(content, "osv.zip", ["MAL-*"], by)


async def publish(services: Services) -> None:
    """The tables of the settings, of which each has its own steps."""
    await services.publisher.publish(services.settings.lake_formats)


async def restore_segments(services: Services) -> None:
    sources = open_sources(services.settings, [sys.stdin.read()])
    work = SegmentRestore(services, sources, cli_caller("org_platform").audit_context)
    for segment in await choose_segments(services, None, None, ()):
        await work.restore(segment)


async def serve_file(order: Order, on_step: OnStep) -> None:
    """Serve the path on standard input to standard output, piece by piece as the server does."""
    configure_logs("error")  # to standard error
    path = sys.stdin.read()
    app = create_app(order.settings, lambda: order.now, jobs=seal_jobs)
    services = app.extensions[EXTENSION]
    serve: Callable[..., Any] = app.asgi_app
    write = os.pwrite

    def writing(*arguments: Any) -> int:
        on_step("pwrite")
        return write(*arguments)

    async def observed(scope: Any, receive: Any, send: Any) -> None:
        async def pass_on(message: Any) -> None:
            if message["type"] == "http.response.body":
                on_step("send")
                os.write(1, message.get("body", b""))
            await send(message)

        await serve(scope, receive, pass_on)

    app.asgi_app = observed  # type: ignore[method-assign]
    with replaced((os, "pwrite", writing)), watched_steps(services.store, on_step):
        with suppress(NotAsDocumented):
            await app.test_client().get(path, headers=order.headers)
        await services.proxy.installs.close()
        await services.packages.files.close()
        on_step("END")
    await services.close()


async def copy_database(_: Order, on_step: OnStep) -> None:
    """From the first to the second URL on standard input; each batch shown is a step."""

    @contextmanager
    def shown(_: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda _done, _total: on_step("shown")

    source, target = (create_engines(url, 10) for url in sys.stdin.read().split())
    await copy_all(source, target, shown)
    await source.dispose()
    await target.dispose()


async def deliver_streams(order: Order, on_step: OnStep) -> None:
    """Deliver all rows to receivers on this machine; a request is two steps, `send` and `sent`."""
    waited = timedelta(0)
    services = build_services(order.settings, lambda: order.now + waited)
    send = services.sender.send

    async def wait(seconds: float) -> None:
        nonlocal waited
        waited += timedelta(seconds=seconds)
        await asyncio.sleep(0)

    async def sending(request: Any) -> Any:
        on_step("send")
        outcome = await send(request)
        on_step("sent")
        return outcome

    services.sender.send = sending  # type: ignore[method-assign]
    services.deliveries.wait = wait
    last_seq = await services.store.last_seq()
    with watched_steps(services.store, on_step):
        cursor = 0
        while cursor < last_seq:
            await services.deliveries.deliver_due()
            await asyncio.sleep(0.001)
            async with services.store.read() as session:
                cursor = (await session.scalars(select(Stream.cursor))).one()
        on_step("END")
    await services.close()


WORK: Final[dict[str, Callable[[Services], Awaitable[Any]]]] = {
    "seal": lambda services: services.sealer.seal_due(everything=True),
    "prune": lambda services: services.pruner.prune_in_background(),
    "sign": lambda services: services.checkpointer.sign_due(),
    "alert": lambda services: services.alerts.watch_due(),
    "unlink": lambda services: services.garbage_collector.unlink_retired(),
    "match": lambda services: services.retro.match_due(),
    "lock": lambda services: services.locker.lock_due(),
    "publish": publish,
    "upload": lambda services: upload_segments(services.store, services.lake, lambda *_: None),
    "expire": lambda services: services.publisher.expire(),
    "import": import_file,
    "blocklist": import_blocklist,
    "restore-segments": restore_segments,
}


OTHER_WORK: Final = {
    "serve-file": serve_file,
    "copy-database": copy_database,
    "stream": deliver_streams,
}


async def work_on(order: Order, on_step: OnStep) -> None:
    """Do the work. The step behind it is called END."""
    services = build_services(order.settings, lambda: order.now)
    with watched_steps(services.store, on_step):
        await WORK[order.work](services)
        on_step("END")
    await services.close()


def main() -> None:
    order = msgspec.json.decode(
        sys.argv[1], type=Order, dec_hook=lambda kind, value: kind(value) if kind is Path else value
    )
    is_last = at(**order.last)

    def on_step(step: str) -> None:
        if is_last(step):
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(OTHER_WORK.get(order.work, work_on)(order, on_step))


if __name__ == "__main__":
    main()
