"""Copies of checkpoints in the bucket: what a database that was rolled back cannot deny.

Each checkpoint becomes an object of its own, locked where objects are, after its commit. Before a
log is signed again, there must be none that the database does not know.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy import select

from analytics.evidence.notes import InvalidNote, Note
from analytics.model.instants import utc_day
from analytics.storage.layout import CHECKPOINTS, checkpoint_key
from service.audit.evidence.prover import note_of
from service.audit.evidence.trees import TreeState
from service.audit.lake import CONFIRMED_S, Lake
from service.audit.segment_locks import lock_end
from service.core.clock import Clock
from service.core.threads import in_thread
from service.store.store import Store, UnitOfWork
from service.store.tables import EvidenceCheckpoint, EvidenceTree, Organisation

STORED_MAX: Final = 256
"""Checkpoints that are stored in one round."""

LOCKED_AT_LEAST: Final = timedelta(days=1)

ROLLED_BACK: Final = "the bucket has checkpoints that this database never signed"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BucketCheckpoints:
    """The checkpoints in the bucket of the segments, if these are in one."""

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
        if is_same:
            async with self.store.write() as work:
                stored = await work.session.get_one(EvidenceCheckpoint, place)
                stored.stored_at = work.now
        else:
            async with self.store.write() as work:
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
