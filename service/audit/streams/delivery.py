"""Delivers each stream in a task of its own, all of them under one lease.

A cursor moves once the receiver has accepted the rows before it, and never past a refused row that
no accepted one follows. It is stored a moment later: what a killed process had sent since is sent
again.
"""

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, cast

import structlog
from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.cache.lru import ByteCache
from analytics.model.log_envelopes import StreamChanged
from analytics.model.rows import audit_row
from analytics.model.schema import audit_id
from service.access.callers import service_context
from service.audit.leased_job import MeasuredJob
from service.audit.streams.rows import CHUNK_ROWS, RowReader, lines_of, record_of, rows_behind
from service.audit.streams.sending import Refused, Sender
from service.audit.streams.sinks import BATCH_ROWS, FOR_PEOPLE, Format, Line, instant, send_lines
from service.core.errors import StoreUnavailable
from service.core.threads import waited_s
from service.store.lease import HeldLease, LeaseLost
from service.store.store import SyncUnitOfWork
from service.store.tables import JournalEntry, Stream

STREAMS_SINCE: Final = "0032"
"""The migration that adds streams."""
ROUND_S: Final = 0.5
"""How often it is looked for new rows, and cursors are stored."""
BATCH_BYTES: Final = 2**20
BATCH_S: Final = 2.0
"""A batch that is not full waits until the one before was sent so long ago."""
BACKOFF_MAX_S: Final = 300.0
RETRY_AFTER_MAX_S: Final = 3_600.0
DENIED_MAX: Final = timedelta(days=1)
"""A stream that is denied for so long is suspended."""
PARKED_MAX: Final = 10
"""After so many refused rows in a row the stream is suspended before the first of them."""

RECORD_ROWS: Final = 100_000
RECORD_PARKED: Final = 100
_HOUR_S: Final = 3_600
_GROWTH_ROWS: Final = 32
_LINE_BYTES: Final = 200
"""About what a line takes besides its text."""
_CHUNK_BYTES: Final = 8 * 2**20
_CHUNKS_BYTES: Final = 64 * 2**20
"""What all streams together keep of rows that were read and are not sent."""
_TAKE_S: Final = 10.0
"""How often the lease is asked for while another process has it: each time is a commit."""
_REST: Final = 30
"""After a full batch a stream rests for so many times as long as it had to wait for a processor."""
_REST_MAX_S: Final = 2.0
_WAIT_S: Final = 0.001
"""For so long a batch waits for a processor on a machine with nothing else to do."""
_IDLE_S: Final = 30.0
"""How often a stream looks for rows that no look at the journal has told of, as imported ones."""

_WITH_ROWS: Final = (
    select(JournalEntry.tenant_id).where(JournalEntry.first_seq > bindparam("seq")).distinct()
)
_PROGRESS: Final = (
    *("state", "cursor", "cursor_at", "reconciled_seq", "reconciled_at"),
    *("parked", "parked_since", "answer", "answered_at", "denied_since"),
)
_STREAMS: Final = cast("Table", Stream.__table__)
_STORE: Final = (
    update(_STREAMS)
    .where(Stream.id == bindparam("of_id"), Stream.revision == bindparam("of_revision"))
    .values({name: bindparam(name, type_=_STREAMS.c[name].type) for name in _PROGRESS})
    .returning(Stream.id)
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Chunk:
    """All rows after one seq up to another; `is_end`: there were none after that."""

    after: int
    lines: list[Line]
    upto: int
    is_end: bool

    def lines_after(self, seq: int) -> list[Line]:
        """Those of its rows that are after `seq`."""
        return self.lines[bisect_right(self.lines, seq, key=attrgetter("seq")) :]


def _same_rows(one: Stream, other: Stream) -> bool:
    names = ("tenant_id", "query", "format")
    return all(getattr(one, name) == getattr(other, name) for name in names)


@dataclass(eq=False)
class Deliveries(MeasuredJob):
    """All streams that are active, while this process has the lease."""

    _sender: Sender

    def __post_init__(self) -> None:
        self._lag_s = self._metrics.gauge(
            "countersign_stream_lag_seconds",
            "The age of the first row that the receiver of a stream has not accepted.",
            "stream",
            mode="livemax",
        )
        self._lag_rows = self._metrics.gauge(
            "countersign_stream_lag_rows",
            "About how many rows the receiver of a stream has not accepted.",
            "stream",
            mode="livemax",
        )
        self.clock = self._clock
        self.send = partial(send_lines, self._sender, self._store, self._settings)
        self.wait: Callable[[float], Awaitable[object]] = asyncio.sleep
        self.waited_s = waited_s
        self.reader = RowReader(self._store, self._lake)
        self.reading = asyncio.Lock()
        """Held while rows are read, so that streams of the same rows do not each read them."""

        self._chunks = ByteCache(_CHUNKS_BYTES)
        self._by = service_context(self._settings.platform_tenant_id)
        self._held: HeldLease | None = None
        self._takes_at = 0.0
        self._stack = AsyncExitStack()
        self._couriers: dict[str, Courier] = {}
        self._seen_seq = 0

    async def deliver_due(self) -> None:
        """Begin and end streams, tell those that have new rows, and store how far they are.

        Raises LeaseTaken, LeaseLost, StoreUnavailable.
        """
        active = await self._store.cached("active_streams", list_active)
        if self._held is None and active and time.monotonic() >= self._takes_at:
            self._takes_at = time.monotonic() + _TAKE_S
            self._held = await self._stack.enter_async_context(self._lease.hold())
            await self._stack.enter_async_context(self._held.renewed())
        if self._held is None:
            return
        try:
            await self._compare(active)
            await self._wake()
            await self._store_changes(self._held)
        except LeaseLost:
            await self.close()
            raise
        if not active:
            await self.close()

    async def close(self) -> None:
        """End all streams, and give the lease back once their cursors are stored."""
        await asyncio.gather(*(courier.end() for courier in self._couriers.values()))
        with suppress(LeaseLost, StoreUnavailable):
            if self._held is not None:
                await self._store_changes(self._held)
        self._couriers, self._held = {}, None
        await self._stack.aclose()

    def chunk_after(self, stream: Stream, seq: int) -> Chunk | None:
        """What was read for this stream, or another of the same rows, if it has what follows."""
        for courier in self._couriers.values():
            chunk: Chunk | None = self._chunks.find(courier.stream.id)[1]
            if chunk and chunk.after <= seq < chunk.upto and _same_rows(courier.stream, stream):
                return chunk
        return None

    def keep(self, stream: Stream, chunk: Chunk, size: int) -> None:
        """Keep what was read for a stream."""
        self._chunks.keep(stream.id, chunk, size)

    async def _compare(self, active: Sequence[Stream]) -> None:
        """End the tasks of streams that were changed, and begin those that have none."""
        revisions = {stream.id: stream.revision for stream in active}
        for stream_id, courier in list(self._couriers.items()):
            if revisions.get(stream_id) != courier.stream.revision:
                await self._couriers.pop(stream_id).end()
                for lag in (self._lag_rows, self._lag_s):
                    lag.labels(stream_id).set(0)  # it may be paused, or gone
        for stream in active:
            if stream.id not in self._couriers:
                self._couriers[stream.id] = Courier(self, stream)

    async def _wake(self) -> None:
        last_seq, woken = await self._store.last_seq(), set[str]()
        if last_seq != self._seen_seq:
            seen = {"seq": self._seen_seq}
            tenants = await self._store.read_at_once(lambda read: read.rows(_WITH_ROWS, seen))
            self._seen_seq, woken = last_seq, {tenant_id for (tenant_id,) in tenants}
        for stream_id, courier in self._couriers.items():
            since = courier.behind_since or self.clock()
            self._lag_s.labels(stream_id).set((self.clock() - since).total_seconds())
            snapshot = await self._store.snapshot(courier.stream.tenant_id)
            self._lag_rows.labels(stream_id).set(rows_behind(snapshot, courier.cursor))
            if courier.stream.tenant_id in woken or courier.is_record_due(self.clock()):
                courier.has_rows.set()

    async def _store_changes(self, lease: HeldLease) -> None:
        changed = [(each, each.changes) for each in self._couriers.values() if each.changes]
        if not changed:
            return
        for courier, _ in changed:
            courier.progress, courier.changes = courier.progress | courier.changes, {}

        def store(work: SyncUnitOfWork) -> None:
            for courier, values in changed:
                stream = courier.stream
                own = {"of_id": stream.id, "of_revision": stream.revision}
                is_stored = work.transaction.rows(_STORE, courier.progress | own)
                if is_stored and "state" in values:
                    event = StreamChanged(
                        stream_id=stream.id,
                        name=stream.name,
                        change="suspended",
                        detail=values["answer"],
                    )
                    row = audit_row(event, self._by, work.now, subject=stream.id)
                    work.journal.add(stream.tenant_id, [row])

        try:
            await lease.write_at_once(store)
        except BaseException:
            for courier, values in changed:
                courier.changes = values | courier.changes
            raise


async def pause_streams(session: AsyncSession) -> None:
    """Pause all streams of a restored database: the rows that follow get ids that were sent."""
    values = {"state": "paused", "answer": "paused: the database was restored from a backup"}
    active = update(Stream).where(Stream.state == "active")
    await session.execute(active.values(revision=Stream.revision + 1, **values))


async def list_active(session: AsyncSession) -> list[Stream]:
    """The streams of all organisations that are to be delivered."""
    return [*await session.scalars(select(Stream).where(Stream.state == "active"))]


class Courier:
    """The task that delivers one stream, as it was when this began."""

    def __init__(self, deliveries: Deliveries, stream: Stream) -> None:
        self.stream = stream
        self.has_rows = asyncio.Event()
        self.behind_since: datetime | None = None
        """When the first row was received that is not accepted yet."""

        self.progress = {name: getattr(stream, name) for name in _PROGRESS}
        self.changes: dict[str, Any] = {}
        """Columns of the progress that are to be stored."""

        self._all = deliveries
        self._position = self.cursor = stream.cursor
        self._parked: list[str] = []
        """Refused rows after the cursor, which no accepted row follows yet."""

        self._parked_since, self._parked_count = [*stream.parked_since], stream.parked
        self._reconciled_seq, self._reconciled_at = stream.reconciled_seq, stream.reconciled_at
        self._unreconciled_rows = self._failures = 0
        self._denied_since = stream.denied_since
        self._rows_max = FOR_PEOPLE.get(stream.kind, BATCH_ROWS)
        self._batch_rows, self._chunk_rows = self._rows_max, BATCH_ROWS
        self._sent_at: datetime | None = None
        self._waited_s = deliveries.waited_s()
        self._is_over = False
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """End the task; what is under way counts as not accepted."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def is_record_due(self, now: datetime) -> bool:
        """Whether the receiver is to get a record: with each hour, and after many rows."""
        hours = (at.timestamp() // _HOUR_S for at in (self._reconciled_at, now))
        is_full = self._unreconciled_rows >= RECORD_ROWS or len(self._parked_since) >= RECORD_PARKED
        return self.stream.kind not in FOR_PEOPLE and (len({*hours}) > 1 or is_full)

    async def _run(self) -> None:
        while not self._is_over:
            try:
                pause_s = await self._step(self._all.clock())
            except Exception as error:
                _log.exception("stream_failed", stream=self.stream.id, reason=str(error))
                pause_s = BACKOFF_MAX_S
            if pause_s:
                await self._all.wait(pause_s)

    async def _step(self, now: datetime) -> float:
        """Send a batch or a record, if one is due; returns for how long to wait then."""
        if self.is_record_due(now):
            return await self._reconcile(now)
        self.has_rows.clear()
        chunk = await self._next_chunk()
        lines, upto, is_end = chunk.lines_after(self._position), chunk.upto, chunk.is_end
        self.behind_since = instant(lines[0].received_us) if lines else None
        if not lines:
            if upto > self._position and not self._parked:
                self._accept(upto)
            elif upto > self._position:  # no accepted row follows the refused ones yet
                self._position = upto
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.has_rows.wait(), _IDLE_S)
            return 0.0
        left_s = 0.0 if self._sent_at is None else BATCH_S - (now - self._sent_at).total_seconds()
        if is_end and len(lines) < self._batch_rows and 0 < left_s <= BATCH_S:
            return left_s
        return await self._deliver(lines, upto, now)

    async def _next_chunk(self) -> Chunk:
        """Rows after the position, and perhaps before it, kept or read."""
        stream, at = self.stream, self._position
        async with self._all.reading:
            if (kept := self._all.chunk_after(stream, at)) is not None:
                return kept
            encode = partial(lines_of, stream.tenant_id, cast("Format", stream.format))
            read = await self._all.reader.after(stream, at, self._chunk_rows, encode)
            chunk = Chunk(at, *read)
            size = sum(len(line.text) + _LINE_BYTES for line in chunk.lines)
            change = 0.5 if size > _CHUNK_BYTES else 2 if size * 2 < _CHUNK_BYTES else 1
            self._chunk_rows = min(CHUNK_ROWS, max(1, int(self._chunk_rows * change)))
            if chunk.lines:  # else others of the same rows may want those from before
                self._all.keep(stream, chunk, size)
        return chunk

    async def _deliver(self, lines: Sequence[Line], upto: int, now: datetime) -> float:
        """Send the first of these, which are all up to a seq."""
        sizes = accumulate(len(line.text) for line in lines[: self._batch_rows])
        batch = lines[: max(1, sum(size <= BATCH_BYTES for size in sizes))]
        if len(batch) < len(lines):
            upto = batch[-1].seq
        self._sent_at = now
        outcome = await self._all.send(self.stream, batch, now)
        if isinstance(outcome, Refused):
            return self._refused(outcome, batch, upto, now)
        self._accept(upto)
        self._unreconciled_rows += len(batch)
        self.changes |= {
            "answer": outcome.text,
            "answered_at": now,
            "denied_since": None,
            "cursor_at": instant(batch[-1].received_us),
        }
        if len(batch) == len(lines) < self._batch_rows:
            return 0.0
        before_s, self._waited_s = self._waited_s, self._all.waited_s()
        return min(_REST_MAX_S, _REST * max(0.0, self._waited_s - before_s - _WAIT_S))

    def _accept(self, upto: int) -> None:
        """All up to this seq is delivered, or parked."""
        self._position = self.cursor = upto
        self._parked_count += len(self._parked)
        self._parked_since = self._parked_since + self._parked
        self._parked, self._failures, self._denied_since = [], 0, None
        self._batch_rows = min(self._rows_max, self._batch_rows + _GROWTH_ROWS)
        parked = {"parked": self._parked_count, "parked_since": self._parked_since}
        self.changes |= {"cursor": upto, **parked}

    def _refused(self, refused: Refused, lines: Sequence[Line], upto: int, now: datetime) -> float:
        """What becomes of refused rows; returns for how long to wait."""
        self.changes |= {"answer": refused.text, "answered_at": now}
        self._is_over = refused.kind == "gone"
        if refused.kind == "rows" and len(lines) > 1:
            self._batch_rows = len(lines) // 2
            return 0.0
        if refused.kind == "rows":
            self._parked.append(audit_id(lines[0].seq))
            self._position = upto
            self._is_over = len(self._parked) == PARKED_MAX
        if refused.kind == "denied":
            self._denied_since = self._denied_since or now
            self.changes["denied_since"] = self._denied_since
            self._is_over = now - self._denied_since >= DENIED_MAX
        if self._is_over:
            self.changes["state"] = "suspended"
        is_ready = self._is_over or refused.kind == "rows"
        return 0.0 if is_ready else self._backoff_s(refused.retry_after_s or 0.0)

    def _backoff_s(self, retry_after_s: float) -> float:
        """Also shortens the next batch, so that receivers that hang hold little memory."""
        self._failures += 1
        self._batch_rows = max(1, self._batch_rows // 2)
        backoff_s = min(BACKOFF_MAX_S, 2.0 ** min(self._failures, 10) / 2)
        jittered_s = backoff_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
        return max(jittered_s, min(retry_after_s, RETRY_AFTER_MAX_S))

    async def _reconcile(self, now: datetime) -> float:
        """Send the record of what was delivered since the last one."""
        span, parked = (self._reconciled_seq, self.cursor), self._parked_since
        record = await record_of(self._all.reader, self.stream, *span, parked, now)
        outcome = await self._all.send(self.stream, [record], now)
        if isinstance(outcome, Refused) and outcome.kind != "rows":
            return self._refused(outcome, (), self.cursor, now)
        if not isinstance(outcome, Refused):  # else the next record is of these rows, too
            self._reconciled_seq, self._parked_since, self._unreconciled_rows = self.cursor, [], 0
        self._reconciled_at = now
        self.changes |= {
            "answer": outcome.text,
            "answered_at": now,
            "reconciled_seq": self._reconciled_seq,
            "reconciled_at": now,
            "parked_since": self._parked_since,
        }
        return 0.0
