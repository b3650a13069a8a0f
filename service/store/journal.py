"""The journal: holds audit rows from their commit until they are sealed into segments."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Table, bindparam, case, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import bounds_of
from analytics.model.rows import AuditRow
from analytics.storage.journal_batches import (
    EncodedBatch,
    JournalBatch,
    encode_days,
    with_checksum,
)
from service.store.batching import scalars_of
from service.store.tables import Counter, JournalEntry, MisdatedDay
from service.store.transaction import Transaction, within

SEQ = "audit_seq"

BEHIND_MAX: Final = timedelta(minutes=5)
"""How far a clock may be behind the last commit: rows of one further behind are `misdated_days`."""

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_LAST_SEQ: Final = select(Counter.value).where(Counter.name == SEQ)
_IS_OF_TENANT: Final = JournalEntry.tenant_id == bindparam("tenant_id")
_FIRST_SEQS: Final = (
    select(JournalEntry.first_seq).where(_IS_OF_TENANT).order_by(JournalEntry.first_seq)
)
_BATCHES: Final = (
    select(
        JournalEntry.day,
        JournalEntry.rows,
        JournalEntry.size,
        JournalEntry.min_created_at,
        JournalEntry.max_created_at,
        JournalEntry.data,
        JournalEntry.received_at,
        JournalEntry.first_seq,
    )
    .where(_IS_OF_TENANT)
    .order_by(JournalEntry.first_seq)
)
_BATCHES_FROM: Final = _BATCHES.where(JournalEntry.first_seq >= bindparam("first_seq"))
# On tables rather than mapped classes: no objects are needed, and the ORM would double the time.
_NOW: Final = bindparam("now", type_=Counter.received_at.type)
_TAKE_SEQ: Final = (
    update(cast("Table", Counter.__table__))
    .where(Counter.name == SEQ)
    .values(
        value=Counter.value + bindparam("count"),
        # Not the database's own greatest of two: the databases name it differently.
        received_at=case((Counter.received_at > _NOW, Counter.received_at), else_=_NOW),
    )
    .returning(Counter.value, Counter.received_at)
)
_APPEND: Final = insert(cast("Table", JournalEntry.__table__))
_MISDATED: Final = cast("Table", MisdatedDay.__table__)
_DELETE_MISDATED: Final = delete(_MISDATED).where(
    MisdatedDay.tenant_id == bindparam("of_tenant", type_=MisdatedDay.tenant_id.type),
    MisdatedDay.day == bindparam("of_day", type_=MisdatedDay.day.type),
)
_ADD_MISDATED: Final = insert(_MISDATED)
_WAITING: Final = select(
    func.coalesce(func.sum(JournalEntry.rows), 0),
    func.count(),
    func.coalesce(func.sum(JournalEntry.size), 0),
).where(_IS_OF_TENANT)


class JournalSize(NamedTuple):
    """Number of rows and batches, and their size in memory in bytes."""

    rows: int
    batches: int
    bytes: int


class AllocatedSeq(NamedTuple):
    """The first seq of some rows, and the instant at which they were received."""

    first_seq: int
    received_at: datetime


def next_seq(transaction: Transaction, count: int, now: datetime) -> AllocatedSeq:
    """Allocate `count` seq numbers at `now`.

    Invariants: the counter's row stays locked until the commit, so commit order is seq order, and a
    reader that has seen seq n never sees a smaller one appear later. `received_at` is never before
    that of a smaller seq: while the clock is behind the last one, it stays at that.
    """
    for last, received_at in transaction.rows(_TAKE_SEQ, {"count": count, "now": now}):
        return AllocatedSeq(int(last) - count + 1, received_at)
    raise LookupError("the seq counter is missing: run `countersign init`")


async def take_seq(session: AsyncSession, count: int, now: datetime) -> AllocatedSeq:
    """`next_seq` for an asynchronous session."""
    return await within(session, next_seq, count, now)


def last_seq(transaction: Transaction) -> int:
    """The highest seq allocated so far, over all tenants; 0 before the first."""
    return next((int(value) for (value,) in transaction.rows(_LAST_SEQ, {})), 0)


async def append(
    session: AsyncSession, tenant_id: str, rows: Iterable[AuditRow], *, now: datetime
) -> None:
    """Add `rows` to the journal, one batch per UTC day."""
    batches = [(tenant_id, batch) for batch in encode_days(rows)]
    await within(session, append_batches, batches, now=now)


def append_batches(
    transaction: Transaction,
    batches: Sequence[tuple[str, EncodedBatch]],
    *,
    now: datetime,
) -> list[JournalBatch]:
    """Add `batches`, each with its tenant id, to the journal, with seq numbers as in `next_seq`."""
    if not batches:
        return []
    rows = [batch.rows for _, batch in batches]
    first, received_at = next_seq(transaction, sum(rows), now)
    # Not strict: the sums have one item more, which is the next free seq.
    stored = [
        with_checksum(
            JournalBatch(
                **_fields(batch), tenant_id=tenant_id, first_seq=seq, received_at=received_at
            )
        )
        for seq, (tenant_id, batch) in zip(accumulate(rows, initial=first), batches, strict=False)
    ]
    transaction.run(_APPEND, [{**_fields(batch), "damage": None} for batch in stored])
    days = {(batch.tenant_id, batch.day) for batch in stored}
    record_misdated(transaction, days, received_at, now)
    return stored


def record_misdated(
    transaction: Transaction,
    days: Collection[tuple[str, date]],
    received_at: datetime,
    now: datetime,
) -> None:
    """Note the tenants' `days` if the clock that dated their rows is behind the last commit."""
    if received_at - now <= BEHIND_MAX:
        return
    kept = transaction.kept
    new = [day for day in days if kept.get(("misdated", *day)) != received_at]
    transaction.run(_DELETE_MISDATED, [{"of_tenant": owner, "of_day": day} for owner, day in new])
    lines = [{"tenant_id": owner, "day": day, "received_at": received_at} for owner, day in new]
    transaction.run(_ADD_MISDATED, lines)
    kept |= {("misdated", *day): received_at for day in new}


def _fields(batch: EncodedBatch) -> dict[str, Any]:
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def count_journal(transaction: Transaction, tenant_id: str) -> JournalSize:
    """The size of the tenant's journal, read from the index alone."""
    ((rows, batches, size),) = transaction.rows(_WAITING, {"tenant_id": tenant_id})
    return JournalSize(int(rows), int(batches), int(size))


def list_seqs(transaction: Transaction, tenant_id: str) -> list[int]:
    """The first seq of each of the tenant's batches, in order of acceptance."""
    return [seq for (seq,) in transaction.rows(_FIRST_SEQS, {"tenant_id": tenant_id})]


def load_batches(
    transaction: Transaction, tenant_id: str, first_seqs: Collection[int]
) -> dict[int, JournalBatch]:
    """The tenant's batches among `first_seqs`, by first seq."""
    wanted = frozenset(first_seqs)
    lines = transaction.rows(
        _BATCHES_FROM, {"tenant_id": tenant_id, "first_seq": min(wanted, default=0)}
    )
    return {line[-1]: _batch(tenant_id, line) for line in lines if line[-1] in wanted}


async def list_batches(
    session: AsyncSession, tenant_id: str, day: date | None = None
) -> list[JournalBatch]:
    """The tenant's batches, optionally of one day, in order of acceptance."""
    query = _BATCHES if day is None else _BATCHES.where(JournalEntry.day == day)
    lines = await session.execute(query, {"tenant_id": tenant_id})
    return [_batch(tenant_id, line) for line in lines]


def _batch(tenant_id: str, line: Sequence[Any]) -> JournalBatch:
    day, rows, size, min_created_at, max_created_at, data, received_at, first_seq = line
    first, last = bounds_of(day)
    return JournalBatch(
        day,
        rows,
        size,
        min_created_at or first,
        max_created_at or last,
        data,
        tenant_id=tenant_id,
        first_seq=first_seq,
        received_at=received_at,
    )


async def list_pending_days(
    session: AsyncSession,
) -> list[tuple[str, date, JournalSize, datetime]]:
    """Each tenant-day with journal rows: its size and when its oldest batch was received."""
    pending = await session.execute(
        select(
            JournalEntry.tenant_id,
            JournalEntry.day,
            func.sum(JournalEntry.rows),
            func.count(),
            func.sum(JournalEntry.size),
            func.min(JournalEntry.received_at),
        ).group_by(JournalEntry.tenant_id, JournalEntry.day)
    )
    return [
        (tenant, day, JournalSize(int(rows), batches, int(size)), since)
        for tenant, day, rows, batches, size, since in pending
    ]


async def remove_batches(session: AsyncSession, batches: Iterable[JournalBatch]) -> int:
    """Delete `batches` from the journal; returns how many of them were still there."""
    remove = delete(JournalEntry).returning(JournalEntry.first_seq)
    seqs = [batch.first_seq for batch in batches]
    return len([gone async for gone in scalars_of(session, remove, JournalEntry.first_seq, seqs)])
