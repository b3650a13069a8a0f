"""Object locks: segments of closed days stay in their bucket until they are pruned.

As in the sealer, the bucket comes first and the catalog second: a crash in between leaves a lock
that the next run finds, and asks for again.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import msgspec
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.errors import StoreFault
from analytics.model.instants import utc_day
from analytics.model.retention import Tier, pruned_at
from analytics.storage.object_lock import probe
from analytics.storage.s3_segments import S3Segments, SegmentLock
from service.audit.installation import installation_id
from service.audit.lake import CONFIRMED_S
from service.audit.leased_job import MeasuredJob
from service.core.errors import Conflict
from service.core.threads import in_thread
from service.store.lease import HeldLease
from service.store.segment_locks import DueLock, forget_locks, list_due_locks, set_locks
from service.store.tables import Fact

LOCK_TERM: Final = timedelta(days=365)
"""How long a segment is locked that is never pruned, at a time."""

RENEWED_AHEAD: Final = timedelta(days=30)
"""How long before such a lock ends it is renewed."""

PROBED_EVERY: Final = timedelta(days=7)
LOCKED_MAX: Final = 256
"""Segments locked in one round, so that no other job waits while all of them are."""

NO_LOCKS: Final = Conflict.of("COUNTERSIGN_OBJECT_LOCK is off: no object is locked")
_FACT: Final = "object_lock"
_log = structlog.get_logger(__name__)


class LockProbe(msgspec.Struct, frozen=True):
    """What the last probe found in the bucket that segments are locked in.

    `place` also names the installation. `held` says for each attempt whether the lock held.
    """

    place: str
    mode: str
    probed_at: datetime
    held: dict[str, bool]

    @property
    def broken(self) -> list[str]:
        """The attempts that the store did not resist."""
        return [attempt for attempt, is_held in self.held.items() if not is_held]


async def load_probe(session: AsyncSession) -> LockProbe | None:
    """The last probe, or None."""
    fact = await session.get(Fact, _FACT)
    return None if fact is None else msgspec.json.decode(fact.value, type=LockProbe)


def lock_end(tier: str, day: date, now: datetime) -> datetime:
    """When a lock ends that is set now on what is of the UTC `day`."""
    return pruned_at(Tier(tier), day) or (now + LOCK_TERM).replace(microsecond=0)


def wanted_lock(due: DueLock, now: datetime) -> SegmentLock:
    """The lock of a segment: until its day is pruned, never shorter than it is."""
    until = due.locked_until
    if due.retired_at is None:
        day = max(due.segment.day, utc_day(due.received_at or due.segment.max_created_at))
        end = lock_end(due.tier, day, now)
        until = max(end, until or end)
    is_changed = due.is_org_held != (due.lock_held_at is not None)
    return SegmentLock(due.segment, until, due.is_org_held if is_changed else None)


@dataclass(eq=False)
class SegmentLocker(MeasuredJob):
    """Locks under the lease, without which no segment is retired."""

    def __post_init__(self) -> None:
        self._is_broken = self._metrics.gauge(
            "countersign_object_lock_broken",
            "1 for each attempt of the last probe that the bucket did not resist.",
            "attempt",
            mode="livemax",
        )

    async def lock_due(self) -> int:
        """Lock what is due, and probe the bucket before the first lock and then once a week.

        Returns how many segments were. One that cannot be locked does not block the others.
        """
        bucket = self._bucket
        if bucket is None:
            return 0
        now, place = self._clock(), await self._place()
        async with self._store.read() as session:
            last = await load_probe(session)
            due = await self._list_due(session, now)
        if last is not None:
            self._show(last)  # it may be another process's
        is_probed = last is not None and self._is_current(last, place, now)
        if is_probed and not due:
            return 0
        async with self._lease.hold() as lease, lease.renewed():
            await self._lake.confirm_prefix(CONFIRMED_S)
            if not is_probed:
                await self._probe(lease, bucket, place, now)
            # Again under the lease.
            due = await self._store.fetch(self._list_due, now)
            return await self._lock(lease, bucket, due, now)

    async def probe(self) -> LockProbe:
        """Try to break locks in the bucket. Raises NO_LOCKS, LeaseTaken, StoreFault."""
        bucket = self._bucket
        if bucket is None:
            raise NO_LOCKS
        async with self._lease.hold() as lease, lease.renewed():
            await self._lake.confirm_prefix()
            return await self._probe(lease, bucket, await self._place(), self._clock())

    @property
    def _bucket(self) -> S3Segments | None:
        bucket = self._lake.bucket
        return bucket if bucket and bucket.locks else None

    async def _place(self) -> str:
        return f"{await installation_id(self._store)} {self._settings.segments_url}"

    def _is_current(self, last: LockProbe, place: str, now: datetime) -> bool:
        is_of_here = (last.place, last.mode) == (place, self._settings.object_lock)
        return is_of_here and abs(now - last.probed_at) < PROBED_EVERY

    async def _list_due(self, session: AsyncSession, now: datetime) -> list[DueLock]:
        quiet = timedelta(seconds=self._settings.compact_quiet_s)
        return await list_due_locks(session, now, quiet, now + RENEWED_AHEAD, LOCKED_MAX)

    async def _probe(
        self, lease: HeldLease, bucket: S3Segments, place: str, now: datetime
    ) -> LockProbe:
        held = await in_thread(probe, bucket.locks, now)
        probed = LockProbe(place, self._settings.object_lock, now, held)
        async with lease.write() as work:
            last = await load_probe(work.session)
            # A restored database, or one with another bucket, knows nothing of the locks in this.
            if last is not None and last.place != place:
                await forget_locks(work.session)
            content = msgspec.json.encode(probed).decode()
            await work.session.merge(Fact(name=_FACT, value=content))
        self._show(probed)
        if probed.broken:
            _log.error("object_lock_broken", attempts=probed.broken)
        return probed

    def _show(self, probed: LockProbe) -> None:
        for attempt, is_held in probed.held.items():
            self._is_broken.labels(attempt).set(not is_held)

    async def _lock(
        self, lease: HeldLease, bucket: S3Segments, due: list[DueLock], now: datetime
    ) -> int:
        if not due:
            return 0
        wanted = [wanted_lock(each, now) for each in due]
        found = await in_thread(bucket.set_locks, wanted, now)
        faults = [fault for fault in found if isinstance(fault, StoreFault)]
        async with lease.write() as work:
            await set_locks(
                work.session,
                [
                    (each.segment, lock.until, _held_at(each, work.now))
                    for each, lock in zip(due, found, strict=True)
                    if not isinstance(lock, StoreFault)
                ],
            )
        for fault in faults:
            _log.error("segment_not_locked", reason=str(fault))
        if faults:
            raise faults[0]
        _log.info("segments_locked", segments=len(due))
        return len(due)


def _held_at(due: DueLock, now: datetime) -> datetime | None:
    return (due.lock_held_at or now) if due.is_org_held else None
