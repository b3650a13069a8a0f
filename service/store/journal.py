"""The journal: where rows are from their commit until they are sealed."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import date, datetime
from itertools import accumulate
from typing import Final, NamedTuple, cast

from sqlalchemy import Table, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.rows import AuditRow
from analytics.storage.journal_batches import EncodedBatch, JournalBatch, encode_days
from service.store.chunks import scalars_of
from service.store.tables import Counter, JournalEntry
from service.store.transaction import Transaction, within

SEQ = "audit_seq"

# Put together once: that takes SQLAlchemy longer than SQLite takes to answer.
LAST_SEQ: Final = select(Counter.value).where(Counter.name == SEQ)
FIRST_SEQS: Final = select(JournalEntry.first_seq).where(
    JournalEntry.tenant_id == bindparam("tenant_id")
)
# Of the tables themselves, because nobody holds these lines as objects: what the ORM does for
# objects takes as long again.
_TAKE_SEQ: Final = (
    update(cast("Table", Counter.__table__))
    .where(Counter.name == SEQ)
    .values(value=Counter.value + bindparam("count"))
    .returning(Counter.value)
)
_APPEND: Final = insert(cast("Table", JournalEntry.__table__))
_WAITING: Final = select(
    func.coalesce(func.sum(JournalEntry.rows), 0),
    func.count(),
    func.coalesce(func.sum(JournalEntry.size), 0),
).where(JournalEntry.tenant_id == bindparam("tenant_id"))


class JournalSize(NamedTuple):
    """How many rows there are, in how many batches, and their bytes in memory."""

    rows: int
    batches: int
    bytes: int


def next_seq(transaction: Transaction, count: int) -> int:
    """The first of `count` fresh seq numbers.

    Invariant: the counter's row stays locked until the commit, so that commit order is seq order
    and a reader who has seen seq n will never see a smaller one appear.
    """
    for (last,) in transaction.rows(_TAKE_SEQ, {"count": count}):
        return int(last) - count + 1
    raise LookupError("the seq counter is missing: run `countersign init`")


async def take_seq(session: AsyncSession, count: int) -> int:
    """`next_seq` in the transaction of `session`."""
    return await within(session, next_seq, count)


async def last_seq(session: AsyncSession) -> int:
    """The last seq that was given out; 0 before the first."""
    return await session.scalar(LAST_SEQ) or 0


async def append(
    session: AsyncSession, tenant_id: str, rows: Iterable[AuditRow], *, received_at: datetime
) -> None:
    """Add `rows` to the journal, one batch for each UTC day they fall on."""
    batches = [(tenant_id, batch) for batch in encode_days(rows)]
    await within(session, append_batches, batches, received_at=received_at)


def append_batches(
    transaction: Transaction,
    batches: Sequence[tuple[str, EncodedBatch]],
    *,
    received_at: datetime,
) -> None:
    """Add `batches`, each with its tenant, to the journal; their rows get the next seq."""
    if not batches:
        return
    rows = [batch.rows for _, batch in batches]
    first = next_seq(transaction, sum(rows))
    lines = [
        {
            "first_seq": seq,
            "tenant_id": tenant_id,
            "day": batch.day,
            "rows": batch.rows,
            "size": batch.size,
            "received_at": received_at,
            "data": batch.data,
        }
        for seq, (tenant_id, batch) in zip(accumulate(rows, initial=first), batches, strict=False)
    ]
    transaction.run(_APPEND, lines)


def count_journal(transaction: Transaction, tenant_id: str) -> JournalSize:
    """How much of the tenant is not yet in a segment; the index alone is read."""
    ((rows, batches, size),) = transaction.rows(_WAITING, {"tenant_id": tenant_id})
    return JournalSize(int(rows), int(batches), int(size))


async def list_first_seqs(
    session: AsyncSession, tenant_id: str, day: date | None = None
) -> list[int]:
    """What names each of the tenant's batches (of one day, if given), in order of acceptance."""
    query = FIRST_SEQS if day is None else FIRST_SEQS.where(JournalEntry.day == day)
    return sorted(await session.scalars(query, {"tenant_id": tenant_id}))


async def load_batches(
    session: AsyncSession, tenant_id: str, first_seqs: Sequence[int]
) -> AsyncIterator[tuple[int, JournalBatch]]:
    """Those of `first_seqs` that are the tenant's, each with its batch; in no order."""
    query = select(JournalEntry).where(JournalEntry.tenant_id == tenant_id)
    async for entry in scalars_of(session, query, JournalEntry.first_seq, first_seqs):
        yield entry.first_seq, JournalBatch(entry.day, entry.first_seq, entry.rows, entry.data)


async def list_batches(
    session: AsyncSession, tenant_id: str, day: date | None = None
) -> list[JournalBatch]:
    """The tenant's batches (of one day, if given) in the order they were accepted."""
    seqs = await list_first_seqs(session, tenant_id, day)
    found = {seq: batch async for seq, batch in load_batches(session, tenant_id, seqs)}
    return [found[seq] for seq in seqs]


async def list_pending_days(
    session: AsyncSession,
) -> list[tuple[str, date, JournalSize, datetime]]:
    """Each tenant-day with journal rows: how much, and when the oldest was received."""
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
    """Delete `batches` from the journal; how many of them were still there."""
    remove = delete(JournalEntry).returning(JournalEntry.first_seq)
    seqs = [batch.first_seq for batch in batches]
    return len([gone async for gone in scalars_of(session, remove, JournalEntry.first_seq, seqs)])
