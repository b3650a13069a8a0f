"""Usage of bindings: counts and last uses, collected in memory and written every few seconds.

Requests do not wait for a write that only counts them. A killed process loses the few seconds of
counts it has not written.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final

from sqlalchemy import bindparam, case, or_, select, update

from analytics.model.instants import utc_day
from service.ci.verifier.seen_claims import VALUES_MAX, with_tokens
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.store.batching import KEYS_MAX, execute_many
from service.store.store import Store, UnitOfWork
from service.store.tables import Binding
from service.store.tables.base import Instant

PENDING_USES_MAX: Final = 50_000
"""Bounds the memory for bindings with unwritten uses while the database is unavailable."""


@dataclass(slots=True)
class _Uses:
    count: int
    last_at: datetime
    seen: dict[str, set[str]] = field(default_factory=dict)

    def add(self, count: int, last_at: datetime) -> None:
        self.count += count
        self.last_at = max(self.last_at, last_at)

    def see(self, seen: Mapping[str, Collection[str]]) -> None:
        for claim, values in seen.items():
            known = self.seen.setdefault(claim, set())
            # One more than is stored tells that there are others.
            known.update(list(values)[: VALUES_MAX + 1 - len(known)])


class BindingUse:
    """Counts the uses of bindings in memory; `flush` writes them."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._dropped = metrics.counter(
            "countersign_binding_uses_dropped",
            "Uses of bindings that were not counted: too many waited to be written.",
        )
        self._pending: dict[str, _Uses] = {}
        self._written: dict[str, tuple[date, dict[str, set[str]]]] = {}
        """What this process has written of a day, so that it is not compared again."""

    def record(self, binding_id: str, at: datetime, seen: Mapping[str, str] | None = None) -> None:
        """Count one use of the binding at `at`, by a token with the claims `seen`."""
        claims = {claim: (value,) for claim, value in (seen or {}).items()}
        self._add(binding_id, 1, at, claims)

    async def flush(self) -> None:
        """Write the pending counts, all or none.

        If the write fails (StoreUnavailable), they are kept for the next call.
        """
        # Before anything is awaited: uses recorded during the write belong to the next one.
        taken, self._pending = self._pending, {}
        if not taken:
            return
        counted = [
            {"used_id": binding_id, "uses": uses.count, "used_at": uses.last_at}
            for binding_id, uses in taken.items()
        ]
        try:
            async with self._store.write() as work:
                await execute_many(work.session, _COUNT_UP, counted)
                await self._write_seen(work, taken)
        except (StoreUnavailable, asyncio.CancelledError):
            for binding_id, uses in taken.items():
                self._add(binding_id, uses.count, uses.last_at, uses.seen)
            raise
        self._remember(taken)

    def _add(
        self,
        binding_id: str,
        count: int,
        last_at: datetime,
        seen: Mapping[str, Collection[str]],
    ) -> None:
        uses = self._pending.get(binding_id)
        if uses is not None:
            uses.add(count, last_at)
        elif len(self._pending) < PENDING_USES_MAX:
            uses = self._pending[binding_id] = _Uses(count, last_at)
        else:
            self._dropped.inc(count)
            return
        uses.see(seen)

    def _is_news(self, binding_id: str, uses: _Uses) -> bool:
        day, seen = self._written.get(binding_id, (None, {}))
        is_known = all(
            # Of more values than are stored, another one is no news.
            len(seen.get(claim, ())) > VALUES_MAX or values <= seen.get(claim, set())
            for claim, values in uses.seen.items()
        )
        return day != utc_day(uses.last_at) or not is_known

    async def _write_seen(self, work: UnitOfWork, taken: Mapping[str, _Uses]) -> None:
        """Merge what tokens had into the bindings, where it changes something."""
        news = [name for name, uses in taken.items() if uses.seen and self._is_news(name, uses)]
        changes = []
        for start in range(0, len(news), KEYS_MAX):
            ids = news[start : start + KEYS_MAX]
            for found in await work.session.execute(_SEEN.where(Binding.id.in_(ids))):
                uses = taken[found.id]
                merged = with_tokens(found.seen_claims, uses.seen, utc_day(uses.last_at))
                if merged != found.seen_claims:
                    since = found.seen_since or uses.last_at
                    changes.append({"used_id": found.id, "since": since, "claims": merged})
        if changes:
            await execute_many(work.session, _SEE, changes)

    def _remember(self, taken: Mapping[str, _Uses]) -> None:
        if len(self._written) > PENDING_USES_MAX:
            self._written.clear()
        for binding_id, uses in taken.items():
            day, known = self._written.get(binding_id, (None, {}))
            today = utc_day(uses.last_at)
            if day != today:
                known = {}
            for claim, values in uses.seen.items():
                union = known.get(claim, set()) | values
                known[claim] = set(sorted(union)[: VALUES_MAX + 1])
            self._written[binding_id] = today, known


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


_SEEN: Final = select(Binding.id, Binding.seen_since, Binding.seen_claims)
_SEE: Final = (
    update(Binding)
    .where(Binding.id == bindparam("used_id"))
    .values(
        seen_since=bindparam("since", type_=Instant()),
        seen_claims=bindparam("claims", type_=Binding.seen_claims.type),
    )
)
