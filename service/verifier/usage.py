"""How often each binding was used, and when last: counted in memory, written every few seconds.

A request must not wait for a write that only counts it. What a process has counted and not yet
written is lost when it is killed: a few seconds of counts, and nothing else.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, case, or_, update

from service.errors import StoreUnavailable
from service.metrics import Metrics
from service.store.column_types import Instant
from service.store.store import Store
from service.store.tables import Binding

PENDING_USES_MAX: Final = 50_000
"""Bindings with uses that are not yet written; a database that stays away must not take memory."""


@dataclass(slots=True)
class _Uses:
    count: int
    last_at: datetime

    def add(self, count: int, last_at: datetime) -> None:
        self.count += count
        self.last_at = max(self.last_at, last_at)


class BindingUse:
    """Counts the uses of bindings for every request, and writes them when it is told to."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._pending: dict[str, _Uses] = {}

    def note(self, binding_id: str, at: datetime) -> None:
        """Count one use of the binding."""
        self._add(binding_id, 1, at)

    async def flush(self) -> None:
        """Write what was counted since the last time, all of it or nothing.

        What cannot be written now (StoreUnavailable) is written next time.
        """
        taken, self._pending = self._pending, {}
        if not taken:
            return
        try:
            async with self._store.write() as work:
                # On the connection: the session knows no UPDATE of many rows by conditions.
                connection = await work.session.connection()
                await connection.execute(_COUNT_UP, _parameters(taken))
        except (StoreUnavailable, asyncio.CancelledError):
            for binding_id, uses in taken.items():
                self._add(binding_id, uses.count, uses.last_at)
            raise

    def _add(self, binding_id: str, count: int, last_at: datetime) -> None:
        uses = self._pending.get(binding_id)
        if uses is not None:
            uses.add(count, last_at)
        elif len(self._pending) < PENDING_USES_MAX:
            self._pending[binding_id] = _Uses(count, last_at)
        else:
            self._metrics.uses_dropped(count)


# Counted up by the database, because other processes count, too.
_COUNT_UP: Final = (
    update(Binding)
    .where(Binding.id == bindparam("used_id"))
    .values(
        use_count=Binding.use_count + bindparam("uses"),
        last_used_at=case(
            (
                or_(
                    Binding.last_used_at.is_(None),
                    Binding.last_used_at < bindparam("used_at", type_=Instant()),
                ),
                bindparam("used_at", type_=Instant()),
            ),
            else_=Binding.last_used_at,
        ),
    )
)


def _parameters(taken: dict[str, _Uses]) -> list[dict[str, object]]:
    return [
        {"used_id": binding_id, "uses": uses.count, "used_at": uses.last_at}
        for binding_id, uses in taken.items()
    ]
