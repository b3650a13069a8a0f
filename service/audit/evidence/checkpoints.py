"""The job that lets each organisation's tree grow by its new rows, and signs what it is then.

Never on the path of a request, and under a lease of its own. Growth and checkpoint are one commit:
a tree is always as its last checkpoint says, no checkpoint is smaller than the one before, and no
size has two roots.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.canonical import DAY_KEY_BYTES
from analytics.evidence.groups import Leaf, days_between, leaf_parts, next_seq, rows_between
from analytics.evidence.notes import Checkpoint, InvalidNote, Note
from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.instants import utc_day
from analytics.storage.layout import CHECKPOINTS, checkpoint_key
from analytics.storage.segment_writer import TEXT_DICTIONARIES
from analytics.storage.snapshot import Snapshot
from service.audit.evidence.keys import KEY_LOST, find_key, signing_key
from service.audit.evidence.prover import note_of
from service.audit.evidence.pruning import PrunePlan, plan_pruning
from service.audit.evidence.trees import (
    ADD_CHECKPOINT,
    ADD_DAY_KEY,
    Extension,
    StoredCheckpoint,
    TreeState,
    extend,
    first_generation,
    read_day_keys,
    read_last_checkpoint,
    read_tree,
    store_extension,
)
from service.audit.lake import CONFIRMED_S, Lake
from service.audit.leased_job import DeferredErrors, MeasuredJob
from service.audit.segment_locks import lock_end
from service.core.clock import Clock
from service.core.threads import in_thread, waited_s
from service.store.lease import HeldLease, LeaseKeeper, LeaseLost
from service.store.store import Store, SyncUnitOfWork, UnitOfWork
from service.store.tables import (
    EvidenceCheckpoint,
    EvidenceTree,
    JournalEntry,
    Organisation,
    SegmentEntry,
)
from service.store.transaction import Transaction, within

STEP_SEQS: Final = 250_000
"""The seqs of one step, and so the most rows of it: their hashes are in memory together."""

PAUSES: Final = 30
"""How long the job pauses for each second that it waited for a processor.

So a machine that is full gives it some per cent of one: rows are accepted at nearly the same rate,
and are signed once there is time. By pauses and not by the idle class: it has the write lock of the
database at times, and who sends rows waits for that. Measured: with 10 it took a tenth of a core.
"""

PAUSE_MAX_S: Final = 10.0
"""Of one pause: the job has the lease meanwhile, which the pruner waits for."""

STORED_MAX: Final = 256
"""Checkpoints that are stored in one round."""

LOCKED_AT_LEAST: Final = timedelta(days=1)

ROLLED_BACK: Final = "the bucket has checkpoints that this database never signed"

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Checkpointer(MeasuredJob):
    """Signs under the lease, so that any number of processes may run one."""

    def __post_init__(self) -> None:
        self._suspended = self._metrics.gauge(
            "countersign_evidence_suspended",
            "Logs of which nothing is signed until the operator resumes them.",
            mode="livemax",
        )
        self._signed_seq = -1
        """All rows up to it are signed, or of logs that are suspended."""

        self._stopping = asyncio.Event()
        self._in_bucket = BucketCheckpoints(self._store, self._lake, self._clock)

    @property
    def lease(self) -> LeaseKeeper:
        """The lease to let trees grow."""
        return self._lease

    def stop(self) -> None:
        """Begin no step that pauses, and give up the one under way: the process ends."""
        self._stopping.set()

    def _gives_up(self, pauses: float) -> bool:
        return pauses > 0 and self._stopping.is_set()

    async def sign_due(self) -> bool:
        """Sign a checkpoint of each organisation that has rows after its last one.

        In the bucket of the segments, if they are in one, it is stored as well: True if more are to
        be.
        """
        await self.take_in(PAUSES)
        has_more = await self._in_bucket.store_due()
        is_suspended = EvidenceTree.suspended.is_not(None)
        async with self._store.read() as session:
            count = select(func.count()).select_from(EvidenceTree).where(is_suspended)
            self._suspended.set(await session.scalar(count) or 0)
        return has_more

    async def take_in(self, pauses: float = 0) -> int:
        """`sign_due`; returns how many rows were taken in.

        For each second that it waited for a processor it leaves it to others for `pauses` more.
        Raises LeaseTaken. An organisation whose rows cannot be read does not keep the others
        waiting: the first such fault is raised after all have been tried.
        """
        last_seq = await self._store.last_seq()
        if last_seq == self._signed_seq:  # to look for due ones reads the whole catalog
            return 0
        due = await self._store.fetch(list_due)
        faults, rows = DeferredErrors("checkpoint_not_signed"), 0
        for tenant_id in due:
            # One by one, so that the pruner gets it in between.
            async with self._lease.hold() as lease, lease.renewed():
                with faults.of(tenant_id, utc_day(self._clock())):
                    rows += await self.grow(lease, tenant_id, pauses)
        faults.raise_first()
        if not self._stopping.is_set():
            self._signed_seq = last_seq
        return rows

    async def grow(self, lease: HeldLease, tenant_id: str, pauses: float = 0) -> int:
        """Take the organisation's new rows into its tree; returns how many there were.

        Raises StoreFault, LeaseLost, KEY_LOST. A suspended tree is left as it is.
        """
        async with self._store.read() as session:
            state = await within(session, read_tree, tenant_id)
            generation = await first_generation(session)
        host = urlsplit(self._settings.public_url).netloc
        state = state or TreeState(tenant_id, f"{host}/{tenant_id}", generation)
        # After the tree, which grows under the lease alone: no row that it has is later.
        snapshot = await self._store.snapshot(tenant_id)
        total, seq = 0, state.last_seq
        if state.suspended is None and await self._in_bucket.knows_more(state):
            async with lease.write() as work:  # another holder may have signed it meanwhile
                await suspend_tree(work, tenant_id, ROLLED_BACK)
            return 0
        while state.suspended is None and (first := next_seq(snapshot, seq)) is not None:
            if self._gives_up(pauses):
                break
            end = min(first + STEP_SEQS, snapshot.watermark + 1)
            leaves, keys = await self._read(snapshot, first, end, pauses)
            seq = end - 1
            if leaves and not self._gives_up(pauses):  # else they may not be all
                extension = await self._lake.run_in_thread(extend, state, sorted(leaves))
                await self._commit(lease, extension, keys)
                state = extension.after
                total += len(leaves)
        return total

    async def plan_pruning(
        self, lease: HeldLease, tenant_id: str, days: Collection[date]
    ) -> PrunePlan | None:
        """See `pruning.plan_pruning`; before it the rows are taken in. Raises StoreFault."""
        await self.sign_after_prune(lease, tenant_id)
        return await plan_pruning(self._store, self._lake, tenant_id, days)

    async def sign_after_prune(self, lease: HeldLease, tenant_id: str) -> None:
        """`grow`; neither a lost key nor rows that are damaged stop retention."""
        try:
            await self.grow(lease, tenant_id)
        except StoreUnreachable:
            raise
        except (KEY_LOST, StoreFault) as error:
            _log.error("checkpoint_not_signed", tenant=tenant_id, reason=str(error))

    async def _read(
        self, snapshot: Snapshot, first: int, end: int, pauses: float
    ) -> tuple[list[Leaf], dict[date, bytes]]:
        """The leaves of these seqs, and the keys of days that are new, of later seqs too."""
        days = days_between(snapshot, first, end)
        async with self._store.read() as session:
            known = await within(session, read_day_keys, snapshot.tenant_id, days)
        new = {day: secrets.token_bytes(DAY_KEY_BYTES) for day in days - known.keys()}
        rows = rows_between(
            self._lake.segments, snapshot, first, end, dictionaries=TEXT_DICTIONARIES
        )
        parts = leaf_parts(rows, snapshot.tenant_id, known | new)
        timed = _timed(parts, lambda: self._gives_up(pauses))
        leaves: list[Leaf] = []
        async for part, waited in self._lake.iterate_in_thread(timed):
            leaves += part
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(pauses * waited, PAUSE_MAX_S))
        return leaves, new

    async def _commit(
        self, lease: HeldLease, extension: Extension, keys: dict[date, bytes]
    ) -> None:
        after = extension.after

        def change(work: SyncUnitOfWork) -> None:
            if not store_extension(work.transaction, extension):
                raise LeaseLost("the tree was changed by another process")
            new = [{"tenant_id": after.tenant_id, "day": day, "key": keys[day]} for day in keys]
            work.transaction.run(ADD_DAY_KEY, new)
            self._sign(work.transaction, work.now, after, extension.root)

        # At once: who sends rows waits for the lock, and this process for the processor.
        await lease.write_at_once(change)
        self._in_bucket.signed(after)
        _log.info("checkpoint_signed", origin=after.name, size=after.size)

    def _sign(self, transaction: Transaction, now: datetime, state: TreeState, root: bytes) -> None:
        text, secret_key = Checkpoint(state.name, state.size, root).text, self._settings.secret_key
        key = signing_key(transaction, secret_key, now)
        lines = [key.line(state.name, text)]
        last = read_last_checkpoint(transaction, state.tenant_id)
        # The first one of a new key is signed by the former, too: who trusts that follows.
        if last is not None and last.key_id != key.id:
            former = find_key(transaction, secret_key, last.key_id)
            lines += [] if former is None else [former.line(state.name, text)]
        signed = StoredCheckpoint(
            generation=state.generation,
            size=state.size,
            root=root,
            last_seq=state.last_seq,
            signed_at=now,
            key_id=key.id,
            signatures="".join(f"{line}\n" for line in lines),
        )
        place = {"tenant_id": state.tenant_id, "stored_at": None}
        transaction.run(ADD_CHECKPOINT, [signed._asdict() | place])


def _timed(
    parts: Iterator[list[Leaf]], gives_up: Callable[[], bool]
) -> Iterator[tuple[list[Leaf], float]]:
    """Each part, and how long its thread waited for a processor."""
    before = waited_s()
    for part in parts:
        yield part, waited_s() - before
        if gives_up():
            return
        before = waited_s()


async def list_due(session: AsyncSession) -> list[str]:
    """The organisations that have rows after those of their trees."""
    last_seq = JournalEntry.first_seq + JournalEntry.rows - 1
    newest: dict[str, int] = {}
    for query in (
        select(JournalEntry.tenant_id, func.max(last_seq)).group_by(JournalEntry.tenant_id),
        select(SegmentEntry.tenant_id, func.max(SegmentEntry.max_seq))
        .where(SegmentEntry.retired_at.is_(None))
        .group_by(SegmentEntry.tenant_id),
    ):
        for tenant_id, seq in await session.execute(query):
            newest[tenant_id] = max(seq, newest.get(tenant_id, 0))
    trees = select(EvidenceTree.tenant_id, EvidenceTree.last_seq, EvidenceTree.suspended)
    for tenant_id, seq, suspended in await session.execute(trees):
        if suspended is not None or newest.get(tenant_id, 0) <= seq:
            newest.pop(tenant_id, None)
    return sorted(newest)


@dataclass(frozen=True, slots=True)
class BucketCheckpoints:
    """Copies of checkpoints in the bucket of the segments, if these are in one.

    A database that was rolled back cannot deny them. Each checkpoint becomes an object of its own,
    locked where objects are, after its commit. Before a log is signed again, there must be none
    that the database does not know.
    """

    store: Store
    lake: Lake
    clock: Clock
    _known: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last checkpoint of each log that this process has signed or compared."""

    def signed(self, state: TreeState) -> None:
        """What this process signed itself is the newest there is."""
        self._known[state.tenant_id] = state.generation, state.size

    async def knows_more(self, state: TreeState) -> bool:
        """Whether the bucket has a checkpoint of the log behind its last one. Raises StoreFault."""
        bucket = self.lake.bucket
        place = state.generation, state.size
        if bucket is None or self._known.get(state.tenant_id) == place:
            return False
        folder = f"{CHECKPOINTS}/tenant={state.tenant_id}"
        after = checkpoint_key(state.tenant_id, state.generation, state.size)
        return await in_thread(lambda: next(bucket.list_keys(folder, after), None)) is not None

    async def store_due(self) -> bool:
        """Store the checkpoints that are not there yet; True if there may be more.

        A kill between an object and its note in the database repeats the request, which finds it.
        """
        bucket = self.lake.bucket
        if bucket is None:
            return False
        query = (
            select(EvidenceCheckpoint, EvidenceTree.origin, Organisation.tier)
            .join(EvidenceTree, EvidenceTree.tenant_id == EvidenceCheckpoint.tenant_id)
            .join(Organisation, Organisation.id == EvidenceCheckpoint.tenant_id)
            .where(EvidenceCheckpoint.stored_at.is_(None), EvidenceTree.suspended.is_(None))
            .order_by(EvidenceCheckpoint.tenant_id, EvidenceCheckpoint.size)
            .limit(STORED_MAX)
        )
        async with self.store.read() as session:
            due = (await session.execute(query)).all()
        if due:
            await self.lake.confirm_prefix(CONFIRMED_S)
        for signed, origin, tier in due:
            note, now = note_of(origin, signed), self.clock()
            key = checkpoint_key(signed.tenant_id, signed.generation, signed.size)
            # Stores refuse a lock that has ended already.
            until = max(lock_end(tier, utc_day(signed.signed_at), now), now + LOCKED_AT_LEAST)
            is_new = await in_thread(bucket.put_locked, key, note.encode(), until)
            is_same = is_new or _is_same(note, await in_thread(bucket.read_object, key))
            await self._record(signed, is_same=is_same)
        return len(due) == STORED_MAX

    async def _record(self, signed: EvidenceCheckpoint, *, is_same: bool) -> None:
        place = (signed.tenant_id, signed.generation, signed.size)
        async with self.store.write() as work:
            if is_same:
                stored = await work.session.get_one(EvidenceCheckpoint, place)
                stored.stored_at = work.now
            else:
                await suspend_tree(work, signed.tenant_id, ROLLED_BACK)


async def suspend_tree(work: UnitOfWork, tenant_id: str, reason: str) -> None:
    """Sign nothing of the organisation's log until the operator resumes it."""
    tree = await work.session.get_one(EvidenceTree, tenant_id)
    tree.suspended = reason
    _log.error("checkpoints_suspended", tenant=tenant_id, reason=reason)


def _is_same(note: str, stored: bytes) -> bool:
    """Whether both are of one root; witnesses may have cosigned since."""
    try:
        return Note.parse(stored.decode()).text == Note.parse(note).text
    except (InvalidNote, UnicodeDecodeError):
        return False
