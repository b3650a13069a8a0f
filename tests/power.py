"""The power goes, or the process is killed, at a chosen step of whatever is being done.

A step is a sync, a new name, a removed file, a new folder, a time of writing that is renewed, a
statement of a writer or a commit; its name is the function's, the statement's text or `COMMIT`.
Requests that change a bucket are steps too: `put object` and `delete object`.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import obstore
from sqlalchemy import event

from service.core.settings import Settings
from service.store.store import Store
from tests.databases import DirectTransaction
from tests.interpreters import run_module
from tests.replaced import replaced

Last = Callable[[str], bool]
"""Says of each step, in order, whether it is the one that does not happen any more."""


class PowerCut(BaseException):
    """The process ends here."""


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
def watched_steps(store: Store, on_step: Callable[[str], None]) -> Iterator[None]:
    """Call `on_step` before each step in the block."""
    one_by_one = threading.Lock()  # files are synced in several threads

    def stepping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            with one_by_one:
                on_step(name)
            return function(*arguments, **options)

        return run

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
        of_os = [(os, name) for name in ("fsync", "utime")]
        of_paths = [(Path, name) for name in ("rename", "unlink", "mkdir")]
        of_objects = [(obstore, name) for name in ("put", "delete")]
        with replaced(
            (DirectTransaction, "execute", stepping_execute),
            *(
                (owner, name, stepping(name, getattr(owner, name)))
                for owner, name in (*of_os, *of_paths)
            ),
            *(
                (owner, name, stepping(f"{name} object", getattr(owner, name)))
                for owner, name in of_objects
            ),
        ):
            yield
    finally:
        event.remove(writer, "before_cursor_execute", on_statement)
        event.remove(writer, "commit", on_commit)


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
    """Do `work` (see `tests.killed`) in a real process that is really killed, see `at`."""
    given = order_for(settings, now, work, beginning, number, after=after)
    killed = await asyncio.to_thread(run_module, "tests.killed", given, input=content)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


def order_for(
    settings: Settings,
    now: datetime,
    work: str,
    beginning: str,
    number: int = 1,
    *,
    after: str = "",
) -> str:
    """The argument of `tests.killed`."""
    order = {
        "settings": settings,
        "now": now,
        "work": work,
        "last": {"beginning": beginning, "number": number, "after": after},
    }
    return msgspec.json.encode(order, enc_hook=str).decode()
