"""Group commit: changes that arrive together share one transaction, and one sync of the disk."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from service.errors import Refusal
from service.store.store import Store, SyncUnitOfWork

GROUP_MAX: Final = 64
"""Changes in one transaction: what is already under way is what a newcomer waits for."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Pending:
    change: Callable[[SyncUnitOfWork], Any]
    answer: asyncio.Future[Any]


class GroupCommit:
    """Runs changes in shared transactions, in the order in which they came."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_Pending] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def commit(self, change: Callable[[SyncUnitOfWork], _Result]) -> _Result:
        """What `change` comes to, once its transaction is durable; it may run in a thread.

        A change may refuse (raise Refusal) only before its first write: the others of its group
        are committed all the same. Raises StoreUnavailable when nothing of the group was.
        """
        answer: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(change, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answer

    async def drain(self) -> None:
        """Wait until everything that was asked for is committed."""
        while self._worker is not None:
            await self._worker

    async def _run(self) -> None:
        try:
            while self._queue:
                size = min(len(self._queue), GROUP_MAX)
                await self._commit_group([self._queue.popleft() for _ in range(size)])
        finally:
            self._worker = None

    async def _commit_group(self, group: list[_Pending]) -> None:
        try:
            outcomes = await self._store.write_at_once(
                lambda work: [_attempt(pending.change, work) for pending in group]
            )
        except Exception as error:
            for pending in group:
                if not pending.answer.done():
                    pending.answer.set_exception(error)
            return
        for pending, (result, refusal) in zip(group, outcomes, strict=True):
            if pending.answer.done():  # its client has gone
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
    except Refusal as refusal:
        return None, refusal
