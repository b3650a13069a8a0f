"""What another caller does at a chosen moment in the middle of what is tested."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event

from service.app.composition import Services
from tests.other_programs import execute
from tests.service.audit.conftest import AuditWorld, start_worker

Action = Callable[[], None]

TAKE_OVER: Final = "UPDATE leases SET holder = 'another-machine/1/x', epoch = epoch + 1"
"""What another machine does to the lease, see `by_hand`."""


def at_the_rename(monkeypatch: pytest.MonkeyPatch, action: Action) -> None:
    """Run `action` once, when a segment has its name and is not yet committed."""
    rename, pending = Path.rename, [action]

    def renamed(self: Path, target: Path) -> Path:
        result = rename(self, target)
        if pending and target.suffix == ".parquet":
            pending.pop()()
        return result

    monkeypatch.setattr(Path, "rename", renamed)


def before_transaction(audit: AuditWorld, number: int, action: Action) -> None:
    """Run `action` just before the `number`th write transaction from now begins."""
    writer = audit.services.store._engines.writer.sync_engine
    begun = iter(range(1, 1000))

    def on_checkout(*_: Any) -> None:
        if next(begun) == number:
            action()

    # Each transaction takes the connection, and only then the write lock.
    event.listen(writer, "checkout", on_checkout)


def by_another_worker(audit: AuditWorld, work: Callable[[Services], Awaitable[Any]]) -> Action:
    """`work` to its end, by what a second process would build over the same data dir."""

    async def run() -> None:
        worker = start_worker(audit.services.settings, audit.clock)
        try:
            await work(worker)
        finally:
            await worker.close()

    def run_to_its_end() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        thread.join()

    return run_to_its_end


def by_hand(audit: AuditWorld, statement: str) -> Action:
    """`statement`, committed on the database past the service."""

    def run() -> None:
        execute(audit.services.settings.data_dir, statement)

    return run
