"""Group commit: concurrent changes share one transaction and one disk sync."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from service.core.errors import Refusal, StoreUnavailable
from service.store.store import Store, SyncUnitOfWork

GROUP_MAX: Final = 64
"""Changes per transaction; bounds how long a new change waits for the current group."""

GATHERING_S: Final = 0.002
"""How long a group waits at most for changes that the event loop is about to bring."""

_IDLE_S: Final = 0.000_05
"""A turn of the event loop that takes no longer had nothing to do."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _PendingWrites:
    change: Callable[[SyncUnitOfWork], Any]
    answer: asyncio.Future[Any]


class GroupCommit:
    """Runs changes in shared transactions, in order of arrival.

    They add rows, answers and marks of installs: nothing that says who may do what.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_PendingWrites] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def commit(self, change: Callable[[SyncUnitOfWork], _Result]) -> _Result:
        """The result of `change` once its transaction is durable; it may run in another thread.

        A change may raise Refusal only before its first write: the rest of its group is committed
        regardless. Raises StoreUnavailable if the whole group failed.
        """
        answer: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingWrites(change, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answer

    async def drain(self) -> None:
        """Wait until all pending changes are committed."""
        while self._worker is not None:
            # Shielded: if this caller is cancelled, the pending changes still get their answers.
            await asyncio.shield(self._worker)

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._gather()
                size = min(len(self._queue), GROUP_MAX)
                await self._commit_group([self._queue.popleft() for _ in range(size)])
        finally:
            # Nothing is awaited after the queue is found empty: a later change begins a worker.
            self._worker = None

    async def _gather(self) -> None:
        """Wait while the event loop is busy: with requests whose changes may be of this group.

        It and the thread of the commit could only take turns, and each commit costs as much for
        one row as for many.
        """
        began_at = time.monotonic()
        ends_at = began_at + GATHERING_S
        while began_at < ends_at and len(self._queue) < GROUP_MAX:
            await asyncio.sleep(0)
            turned_at = time.monotonic()
            if turned_at - began_at < _IDLE_S:
                return
            began_at = turned_at

    async def _commit_group(self, group: list[_PendingWrites]) -> None:
        try:
            outcomes = await self._store.write_at_once(
                lambda work: [_attempt(pending.change, work) for pending in group],
                changes_rights=False,
            )
        except Exception as error:
            for pending in group:
                if not pending.answer.done():
                    pending.answer.set_exception(error)
            return
        for pending, (result, refusal) in zip(group, outcomes, strict=True):
            if pending.answer.done():  # cancelled by its caller
                continue
            if refusal is None:
                pending.answer.set_result(result)
            else:
                pending.answer.set_exception(refusal)


def _attempt(
    change: Callable[[SyncUnitOfWork], Any], work: SyncUnitOfWork
) -> tuple[Any, Refusal | None]:
    try:
        return change(work), None
    except StoreUnavailable:
        raise  # the transaction is broken: nothing of the group can be committed
    except Refusal as refusal:
        return None, refusal
