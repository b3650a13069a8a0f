"""Delivers each stream in a task of its own, all of them under one lease.

A cursor moves once the receiver has accepted the rows before it, and never past a refused row that
no accepted one follows. It is stored a moment later: what a killed process had sent since is sent
again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.cache.lru import ByteCache
from analytics.export.csv_json import JsonSpelling
from analytics.export.text_encoder import TextEncoder
from analytics.model.log_envelopes import StreamChanged
from analytics.model.schema import NO_ROWS, audit_id
from service.access.callers import service_context
from service.audit.lake import Lake
from service.audit.streams.reconciliation import RECONCILIATION, is_due, reconciliation
from service.audit.streams.sending import Delivered, Refused, Sender
from service.audit.streams.sinks import Line
from service.audit.streams.stored import CHUNK_ROWS, RowReader, send_lines, stored_query
from service.core.clock import Clock
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.lease import HeldLease, LeaseKeeper, LeaseLost
from service.store.store import Store
from service.store.tables import JournalEntry, Stream

ROUND_S: Final = 0.5
"""How often it is looked for new rows, and cursors are stored."""
BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 2**20
BATCH_S: Final = 2.0
"""A batch that is not full waits until the one before was sent so long ago."""
BACKOFF_MAX_S: Final = 300.0
RETRY_AFTER_MAX_S: Final = 3_600.0
DENIED_MAX: Final = timedelta(days=1)
"""A stream that is denied for so long is suspended."""
PARKED_MAX: Final = 10
"""After so many refused rows in a row the stream is suspended before the first of them."""

_GROWTH_ROWS: Final = 32
_CHUNK_BYTES: Final = 8 * 2**20
_CHUNKS_BYTES: Final = 64 * 2**20
"""What all streams together keep of rows that were read and are not sent."""
_IDLE_S: Final = 30.0
"""How often a stream looks for rows that no look at the journal has told of, as imported ones."""

_WITH_ROWS: Final = (
    select(JournalEntry.tenant_id).where(JournalEntry.first_seq > bindparam("seq")).distinct()
)
_log = structlog.get_logger(__name__)


class Deliveries:
    """All streams that are active, while this process has the lease."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        lake: Lake,
        lease: LeaseKeeper,
        sender: Sender,
        clock: Clock,
        metrics: Metrics,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.sender = sender
        self.clock = clock
        self.wait = wait
        self.reader = RowReader(store, lake)
        self.chunks = ByteCache(_CHUNKS_BYTES)
        self._store = store
        self._keeper = lease
        self._lease: HeldLease | None = None
        self._stack = AsyncExitStack()
        self._couriers: dict[str, Courier] = {}
        self._seen_seq = 0

    async def deliver_due(self) -> None:
        """Begin and end streams, tell those that have new rows, and store how far they are.

        Raises LeaseTaken, LeaseLost, StoreUnavailable.
        """
        active = await self._store.cached("active_streams", list_active)
        if self._lease is None:
            if not active:
                return
            self._lease = await self._stack.enter_async_context(self._keeper.hold())
            await self._stack.enter_async_context(self._lease.renewed())
        try:
            await self._compare(active)
            await self._wake()
            await self._store_changes(self._lease)
        except LeaseLost:
            await self.close()
            raise
        if not active:
            await self.close()

    async def close(self) -> None:
        """End all streams, and give the lease back once their cursors are stored."""
        ended = [courier.end() for courier in self._couriers.values()]
        await asyncio.gather(*ended)
        try:
            if self._lease is not None:
                await self._store_changes(self._lease)
        except (LeaseLost, StoreUnavailable) as error:
            _log.warning("cursors_not_stored", reason=type(error).__name__)
        self._couriers, self._lease = {}, None
        await self._stack.aclose()

    async def _compare(self, active: Sequence[Stream]) -> None:
        """End the tasks of streams that were changed, and begin those that have none."""
        revisions = {stream.id: stream.revision for stream in active}
        for stream_id, courier in list(self._couriers.items()):
            if revisions.get(stream_id) != courier.stream.revision:
                await courier.end()
                del self._couriers[stream_id]
        for stream in active:
            if stream.id not in self._couriers:
                self._couriers[stream.id] = Courier(self, stream)

    async def _wake(self) -> None:
        last_seq, woken = await self._store.last_seq(), set[str]()
        if last_seq != self._seen_seq:
            seen = {"seq": self._seen_seq}
            tenants = await self._store.read_at_once(lambda read: read.rows(_WITH_ROWS, seen))
            self._seen_seq, woken = last_seq, {tenant_id for (tenant_id,) in tenants}
        now = self.clock()
        for courier in self._couriers.values():
            if courier.stream.tenant_id in woken or courier.is_record_due(now):
                courier.has_rows.set()

    async def _store_changes(self, lease: HeldLease) -> None:
        changed = [(each, each.take_changes()) for each in self._couriers.values() if each.changes]
        if not changed:
            return
        try:
            async with lease.write() as work:
                for courier, values in changed:
                    stream = courier.stream
                    is_same = (Stream.id == stream.id) & (Stream.revision == stream.revision)
                    stored = await work.session.execute(
                        update(Stream).where(is_same).values(**values).returning(Stream.id)
                    )
                    if stored.scalar() and "state" in values:
                        by = service_context(self.settings.platform_tenant_id)
                        event = StreamChanged(
                            stream_id=stream.id,
                            name=stream.name,
                            change="suspended",
                            detail=values["answer"],
                        )
                        work.record(stream.tenant_id, event, by, subject=stream.id)
        except BaseException:
            for courier, values in changed:
                courier.changes = values | courier.changes
            raise


async def list_active(session: AsyncSession) -> list[Stream]:
    """The streams of all organisations that are to be delivered."""
    return [*await session.scalars(select(Stream).where(Stream.state == "active"))]


class Courier:
    """The task that delivers one stream, as it was when this began."""

    def __init__(self, deliveries: Deliveries, stream: Stream) -> None:
        self.stream = stream
        self.has_rows = asyncio.Event()
        self.changes: dict[str, Any] = {}
        """Columns of the stream that are to be stored."""

        self._all = deliveries
        self._query = stored_query(stream)
        self._position = self._cursor = stream.cursor
        self._parked: list[int] = []
        """Refused rows after the cursor, which no accepted row follows yet."""

        self._parked_since = [*stream.parked_since]
        self._parked_count = stream.parked
        self._reconciled_seq, self._reconciled_at = stream.reconciled_seq, stream.reconciled_at
        self._unreconciled_rows = 0
        self._denied_since = stream.denied_since
        self._failures = 0
        self._batch_rows = self._chunk_rows = BATCH_ROWS
        self._sent_at: datetime | None = None
        self._is_over = False
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """End the task; what is under way counts as not accepted."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def take_changes(self) -> dict[str, Any]:
        """The changes so far, which are now its caller's."""
        taken, self.changes = self.changes, {}
        return taken

    def is_record_due(self, now: datetime) -> bool:
        """Whether the receiver is to get a record of what was delivered."""
        return is_due(self._reconciled_at, now, self._unreconciled_rows, len(self._parked_since))

    async def _run(self) -> None:
        while not self._is_over:
            try:
                pause_s = await self._step()
            except Exception as error:
                _log.exception("stream_failed", stream=self.stream.id, reason=str(error))
                pause_s = BACKOFF_MAX_S
            if pause_s and not self._is_over:
                await self._all.wait(pause_s)

    async def _step(self) -> float:
        """Send a batch or a record, if one is due; returns for how long to wait then."""
        now = self._all.clock()
        if self.is_record_due(now):
            return await self._reconcile(now)
        self.has_rows.clear()
        rows, upto = await self._next_rows()
        if not rows.num_rows:
            if upto > self._position:
                self._accept(upto, now, {})
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.has_rows.wait(), _IDLE_S)
            return 0.0
        left_s = 0.0 if self._sent_at is None else BATCH_S - (now - self._sent_at).total_seconds()
        if rows.num_rows < self._batch_rows and 0 < left_s <= BATCH_S:
            return left_s
        taken = rows.slice(0, self._batch_rows)
        tenant_id = self.stream.tenant_id
        lines = await self._all.reader.lake.run_in_thread(partial(_lines, taken, tenant_id))
        if len(lines) < rows.num_rows:
            upto = lines[-1].seq
        self._sent_at = now
        outcome = await self._send(lines, now)
        if isinstance(outcome, Refused):
            return self._refused(outcome, lines, upto, now)
        received_at = taken["received_at"][len(lines) - 1].as_py()
        self._unreconciled_rows += len(lines)
        self._accept(upto, now, {"answer": outcome.text, "cursor_at": received_at})
        return 0.0

    async def _next_rows(self) -> tuple[pa.Table, int]:
        """Rows after the position, kept or read, and the seq up to which these are all."""
        name, at = self.stream.id, self._position
        is_kept, chunk = self._all.chunks.find(name)
        start, rows, upto = chunk if is_kept else (at, NO_ROWS, at)
        if not start <= at < upto:
            rows, upto = await self._all.reader.after(
                self.stream.tenant_id, self._query, at, self._chunk_rows
            )
            if rows.nbytes > _CHUNK_BYTES:
                self._chunk_rows = max(1, self._chunk_rows // 2)
            elif rows.nbytes * 2 < _CHUNK_BYTES:
                self._chunk_rows = min(CHUNK_ROWS, self._chunk_rows * 2)
            if rows.num_rows > self._batch_rows:
                self._all.chunks.keep(name, (at, rows, upto), rows.nbytes)
        return rows.slice(pc.sum(pc.less_equal(rows["seq"], at)).as_py() or 0), upto

    async def _send(self, lines: Sequence[Line], now: datetime) -> Delivered | Refused:
        return await send_lines(self._all.sender, self._all.settings, self.stream, lines, now)

    def _accept(self, upto: int, now: datetime, values: dict[str, Any]) -> None:
        """All up to this seq is delivered, or parked."""
        self._position = self._cursor = upto
        self._parked_count += len(self._parked)
        self._parked_since += map(audit_id, self._parked)
        self._parked, self._failures, self._denied_since = [], 0, None
        self._batch_rows = min(BATCH_ROWS, self._batch_rows + _GROWTH_ROWS)
        if values:
            values |= {"answered_at": now, "denied_since": None, "parked": self._parked_count}
        self.changes |= {"cursor": upto, "parked_since": self._parked_since, **values}

    def _refused(self, refused: Refused, lines: Sequence[Line], upto: int, now: datetime) -> float:
        """What becomes of refused rows; returns for how long to wait."""
        self.changes |= {"answer": refused.text, "answered_at": now}
        if refused.kind == "gone":
            self._suspend()
        elif refused.kind == "rows":
            if len(lines) > 1:
                self._batch_rows = len(lines) // 2
                return 0.0
            self._parked.append(lines[0].seq)
            self._position = upto
            if len(self._parked) == PARKED_MAX:
                self._suspend()
            return 0.0
        elif refused.kind == "denied":
            self._denied_since = self._denied_since or now
            self.changes["denied_since"] = self._denied_since
            if now - self._denied_since >= DENIED_MAX:
                self._suspend()
        return self._backoff_s(refused.retry_after_s or 0.0)

    def _suspend(self) -> None:
        self.changes["state"] = "suspended"
        self._is_over = True

    def _backoff_s(self, retry_after_s: float) -> float:
        """Also shortens the next batch, so that receivers that hang hold little memory."""
        self._failures += 1
        self._batch_rows = max(1, self._batch_rows // 2)
        backoff_s = min(BACKOFF_MAX_S, 2.0 ** min(self._failures, 10) / 2)
        jittered_s = backoff_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
        return max(jittered_s, min(retry_after_s, RETRY_AFTER_MAX_S))

    async def _reconcile(self, now: datetime) -> float:
        """Send the record of what was delivered since the last one."""
        span = (self._reconciled_seq, self._cursor)
        text = await reconciliation(
            self._all.reader, self.stream, self._query, span, self._parked_since, now
        )
        at_us = round(now.timestamp() * 1e6)
        outcome = await self._send([Line(self._cursor, at_us, RECONCILIATION, text)], now)
        if isinstance(outcome, Refused):
            if outcome.kind != "rows":
                return self._refused(outcome, (), self._cursor, now)
        else:
            self._reconciled_seq, self._parked_since, self._unreconciled_rows = self._cursor, [], 0
        self._reconciled_at = now
        self.changes |= {
            "answer": outcome.text,
            "answered_at": now,
            "reconciled_seq": self._reconciled_seq,
            "reconciled_at": now,
            "parked_since": self._parked_since,
        }
        return 0.0


def _lines(rows: pa.Table, tenant_id: str) -> list[Line]:
    """The first of `rows` as they are sent, at most BATCH_BYTES of them, but at least one."""
    pieces = TextEncoder(tenant_id, JsonSpelling("", "\n")).texts(rows)
    texts = b"".join(piece for piece, _ in pieces).split(b"\n")
    at = rows["created_at"].cast(pa.int64()).to_pylist()
    lines = map(Line, rows["seq"].to_pylist(), at, rows["event"].to_pylist(), texts)
    sizes = accumulate(map(len, texts))
    return [line for line, size in zip(lines, sizes, strict=False) if size <= BATCH_BYTES] or [
        Line(rows["seq"][0].as_py(), at[0], rows["event"][0].as_py(), texts[0])
    ]
