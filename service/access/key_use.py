"""When API keys were last used: recorded in memory, written later, at most once a minute.

Requests do not wait for it. A killed process loses what it has not written.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import bindparam, or_, update

from service.core.errors import StoreUnavailable
from service.store.batching import execute_many
from service.store.store import Store
from service.store.tables import ApiKey
from service.store.tables.base import Instant

STEP: Final = timedelta(minutes=1)
"""How stale `last_used_at` may become while a key is used."""

_NOTE: Final = (
    update(ApiKey)
    .where(
        ApiKey.id == bindparam("used_id"),
        # Other processes note uses, too: an earlier use must not replace theirs.
        or_(
            ApiKey.last_used_at.is_(None),
            ApiKey.last_used_at <= bindparam("step_before", type_=Instant()),
        ),
    )
    .values(last_used_at=bindparam("used_at", type_=Instant()))
)


class KeyUse:
    """Records the uses of API keys in memory; `flush` writes them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recorded: dict[str, datetime] = {}
        """The last use of each key that was recorded: bounded by the number of keys."""

        self._pending: dict[str, datetime] = {}

    def record(self, key_id: str, at: datetime) -> None:
        """Record that the key was accepted at `at`, unless it was within STEP before."""
        last = self._recorded.get(key_id)
        if last is None or at - last >= STEP:
            self._recorded[key_id] = self._pending[key_id] = at

    async def flush(self) -> None:
        """Write what is pending, all or nothing.

        If the write fails (StoreUnavailable), it is kept for the next call.
        """
        taken, self._pending = self._pending, {}
        if not taken:
            return
        try:
            async with self._store.write() as work:
                used = [
                    {"used_id": key_id, "used_at": at, "step_before": at - STEP}
                    for key_id, at in taken.items()
                ]
                await execute_many(work.session, _NOTE, used)
        except (StoreUnavailable, asyncio.CancelledError):
            # In this order: uses recorded during the write are later ones, and win.
            self._pending = taken | self._pending
            raise
