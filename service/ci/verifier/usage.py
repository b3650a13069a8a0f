"""Usage of bindings: counts and last uses, collected in memory and written every few seconds.

Requests do not wait for a write that only counts them. A killed process loses the few seconds of
counts it has not written.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, case, or_, update

from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.store.batching import execute_many
from service.store.store import Store
from service.store.tables import Binding
from service.store.tables.base import Instant

PENDING_USES_MAX: Final = 50_000
"""Bounds the memory for bindings with unwritten uses while the database is unavailable."""


@dataclass(slots=True)
class _Uses:
    count: int
    last_at: datetime

    def add(self, count: int, last_at: datetime) -> None:
        self.count += count
        self.last_at = max(self.last_at, last_at)


class BindingUse:
    """Counts the uses of bindings in memory; `flush` writes them."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._dropped = metrics.counter(
            "countersign_binding_uses_dropped",
            "Uses of bindings that were not counted: too many waited to be written.",
        )
        self._pending: dict[str, _Uses] = {}

    def record(self, binding_id: str, at: datetime) -> None:
        """Count one use of the binding at `at`."""
        self._add(binding_id, 1, at)

    async def flush(self) -> None:
        """Write the pending counts, all or none.

        If the write fails (StoreUnavailable), they are kept for the next call.
        """
        # Before anything is awaited: uses recorded during the write belong to the next one.
        taken, self._pending = self._pending, {}
        if not taken:
            return
        try:
            async with self._store.write() as work:
                await execute_many(work.session, _COUNT_UP, _parameters(taken))
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
            self._dropped.inc(count)


# Incremented in the database, because other processes count too.
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
