"""The pruner: deletes days that were past every retention their organisation had this week.

Queries hide such rows at once; pruning frees their space, PRUNE_DELAY later. A whole day, its
journal batches and segments, is deleted in one transaction per organisation. Segments are only
retired: existing readers continue, and the sweeper unlinks the files after the grace period.
"""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import ColumnElement, and_, delete, func, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.instants import format_us, midnight, optional_us
from analytics.model.log_envelopes import AuditPruned, ClockAccepted, StreamGap
from analytics.model.retention import PRUNE_DELAY, Tier, prunable_before, tiers_held
from analytics.model.rows import AuditContext
from analytics.model.schema import audit_id
from service.access.callers import service_context
from service.audit.clock_guard import (
    ClockGuard,
    Clocks,
    accepted_record,
    load_record,
    record_after_run,
    store_record,
)
from service.audit.evidence.checkpoints import Checkpointer
from service.audit.evidence.pruning import PrunePlan, apply_pruning
from service.audit.evidence.trees import StoredCheckpoint, read_last_checkpoint
from service.audit.refusals import ClockNotTrusted
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.lease import HeldLease, LeaseKeeper
from service.store.organisations import get_org, get_org_by_id, list_former_tiers, list_orgs
from service.store.store import Store, UnitOfWork
from service.store.tables import (
    AlertFiring,
    EvidenceDayKey,
    JournalEntry,
    LostSegment,
    MisdatedDay,
    Organisation,
    SegmentEntry,
    Stream,
)
from service.store.transaction import within

PLANS_MAX: Final = 3
"""How often is planned anew what a tree keeps, while rows of the days change."""

UNSENT_WAIT: Final = timedelta(days=7)
"""For how much longer days are kept whose rows a stream has not delivered."""

SIGNING_WAIT_S: Final = 120.0
"""How long a run waits for the process that signs."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The days of one organisation past retention, and their rows: deleted, unless held."""

    tenant_id: str
    slug: str
    days: tuple[date, ...]
    rows: int
    is_held: bool


@dataclass(eq=False)
class Pruner:
    """Prunes under the lease, so that any number of processes may run a pruner."""

    _settings: Settings
    _store: Store
    _lease: LeaseKeeper
    _checkpointer: Checkpointer
    _clock_guard: ClockGuard
    _metrics: Metrics

    def __post_init__(self) -> None:
        self._is_refused = self._metrics.gauge(
            "countersign_prune_refused",
            "1 while the last pruning run of a process was refused because of the clock.",
            mode="livemax",
        )

    async def prune_in_background(self) -> None:
        """`prune` for all organisations, in the service's name; also tells of a refused clock."""
        try:
            await self.prune(service_context(self._settings.platform_tenant_id))
        except ClockNotTrusted as refusal:
            self._is_refused.set(1)
            _log.error(
                "prune_refused",
                reason=refusal.reason,
                why=refusal.why,
                clock=format_us(refusal.now),
                last_run_at=optional_us(refusal.last_run_at),
            )
            raise
        self._is_refused.set(0)

    async def prune(
        self, by: AuditContext, *, slug: str | None = None, is_clock_accepted: bool = False
    ) -> list[Pruned]:
        """Delete what is past retention, in all organisations or only in `slug`.

        Returns what was deleted, and what only a legal hold kept. Raises OrgNotFound,
        ClockNotTrusted (unless `is_clock_accepted`), LeaseTaken, LeaseLost.
        """
        # All commits use the time that passed the guard, because the clock could jump after it.
        clocks = await self._clock_guard.read()
        due = await self._due(clocks, slug=slug, is_clock_accepted=is_clock_accepted)
        async with self._lease.hold() as lease:
            async with lease.write() as work:
                await _record_clocks(work, clocks, by, is_accepted=is_clock_accepted)
            pruned = [await self._prune_org(lease, past, clocks.now, by) for past in due]
        return [past for past in pruned if past.days]

    async def forecast(
        self, *, slug: str | None = None, is_clock_accepted: bool = False
    ) -> list[Pruned]:
        """What `prune` would return now, without changes. Raises OrgNotFound, ClockNotTrusted."""
        clocks = await self._clock_guard.read()
        return await self._due(clocks, slug=slug, is_clock_accepted=is_clock_accepted)

    async def _due(
        self, clocks: Clocks, *, slug: str | None, is_clock_accepted: bool
    ) -> list[Pruned]:
        """The organisations with days to delete by `clocks`, which must pass the guard."""
        async with self._store.read() as session:
            orgs = await list_orgs(session) if slug is None else [await get_org(session, slug)]
            if not is_clock_accepted:
                record_after_run(await load_record(session), clocks)
            past = [(await _past_days(session, org, clocks.now))[1] for org in orgs]
        return [pruned for pruned in past if pruned.days]

    async def _prune_org(
        self, lease: HeldLease, past: Pruned, now: datetime, by: AuditContext
    ) -> Pruned:
        """Delete the past days of one organisation, unless it is on hold.

        Its tree keeps what later proofs need of them, and a checkpoint follows.
        """
        if past.is_held:
            return past
        signing_lease = self._checkpointer.lease.hold(SIGNING_WAIT_S)
        async with lease.renewed(), signing_lease as signing, signing.renewed():
            dropped = None
            for _ in range(PLANS_MAX):  # meanwhile there may be other days, or other rows of them
                plan = await self._plan(signing, past)
                dropped = await self._drop(lease, signing, past.tenant_id, now, by, plan)
                if dropped is not None:
                    break
                async with self._store.read() as session:
                    org = await get_org_by_id(session, past.tenant_id)
                    _, past = await _past_days(session, org, now)
            if dropped is None:
                _log.error("not_pruned", tenant=past.tenant_id, reason="its rows change: next run")
                return replace(past, days=())
            await self._checkpointer.sign_after_prune(signing, past.tenant_id)
        return dropped

    async def _plan(self, signing: HeldLease, past: Pruned) -> PrunePlan | None:
        """What the tree keeps; None if that cannot be told: rows go all the same."""
        try:
            return await self._checkpointer.plan_pruning(signing, past.tenant_id, past.days)
        except StoreUnreachable:
            raise
        except StoreFault as fault:
            _log.error("pruned_without_hashes", tenant=past.tenant_id, reason=str(fault))
            return None

    async def _drop(
        self,
        lease: HeldLease,
        signing: HeldLease,
        tenant_id: str,
        now: datetime,
        by: AuditContext,
        plan: PrunePlan | None,
    ) -> Pruned | None:
        """Delete them in one commit; None, changing nothing, if `plan` is not of these rows.

        Retention and hold are read again in the transaction, so that a tier raised or a hold set
        meanwhile is respected.
        """
        async with lease.write() as work:
            await signing.confirm(work)
            org = await get_org_by_id(work.session, tenant_id)
            before, past = await _past_days(work.session, org, now)
            if before is None or past.is_held or not past.days:
                return past
            if plan is not None and not plan.is_of(past.days, past.rows):
                return None
            last_seq, streams = await _unsent(work.session, org.id, before)
            rows = await drop_days(work.session, org.id, before, work.now)
            for stream in streams:
                after, to = audit_id(stream.cursor), audit_id(last_seq)
                gap = StreamGap(stream_id=stream.id, name=stream.name, after_id=after, to_id=to)
                work.record(org.id, gap, by, subject=stream.id)
            dropped = _pruned(org, rows)
            last = await within(work.session, read_last_checkpoint, org.id)
            if plan is not None:
                await apply_pruning(work.session, plan)
            _record(work, dropped, org.tier, plan, last, by)
        _log.info("days_pruned", org=org.slug, days=len(dropped.days), rows=dropped.rows)
        return dropped


async def _record_clocks(
    work: UnitOfWork, clocks: Clocks, by: AuditContext, *, is_accepted: bool
) -> None:
    """Record a run; if it was refused but for `is_accepted`, in each organisation's log, too.

    All of them: the record decides about later runs, whichever organisation this one is for.
    Raises ClockNotTrusted.
    """
    try:
        # Again under the write lock: another process may have run meanwhile.
        record = record_after_run(await load_record(work.session), clocks)
    except ClockNotTrusted as refusal:
        if not is_accepted:
            raise
        record = accepted_record(clocks)
        envelope = ClockAccepted(
            clock=format_us(clocks.store),
            machine_clock=format_us(clocks.machine),
            last_run_at=optional_us(refusal.last_run_at),
            reason=refusal.reason,
        )
        for org in await list_orgs(work.session):
            work.record(org.id, envelope, by)
    await store_record(work.session, record)


async def _past_days(
    session: AsyncSession, org: Organisation, now: datetime
) -> tuple[date | None, Pruned]:
    """The days of `org` that were past retention PRUNE_DELAY before `now`, held or not.

    Also the day before which they are, None if no day ever is.
    """
    left_at = await list_former_tiers(session, org)
    judged_at = now - PRUNE_DELAY
    before = prunable_before(tiers_held(Tier(org.tier), left_at, judged_at), judged_at)
    if before is not None and (await _unsent(session, org.id, before))[1]:
        before -= UNSENT_WAIT
    rows = Counter[date]() if before is None else await count_days(session, org.id, before)
    return before, _pruned(org, rows)


def _pruned(org: Organisation, rows: Counter[date]) -> Pruned:
    return Pruned(
        tenant_id=org.id,
        slug=org.slug,
        days=tuple(sorted(rows)),
        rows=rows.total(),
        is_held=org.held_since is not None,
    )


def _record(
    work: UnitOfWork,
    dropped: Pruned,
    tier: str,
    plan: PrunePlan | None,
    last: StoredCheckpoint | None,
    by: AuditContext,
) -> None:
    days = [str(day) for day in dropped.days]
    first, latest = (None, None) if plan is None or plan.seqs is None else plan.seqs
    envelope = AuditPruned(
        first_day=days[0],
        last_day=days[-1],
        days=days,
        rows=dropped.rows,
        tier=tier,
        first_id=None if first is None else audit_id(first),
        last_id=None if latest is None else audit_id(latest),
        leaf_ranges=None if plan is None else plan.leaf_ranges,
        checkpoint_size=None if last is None else last.size,
        checkpoint_root=None if last is None else base64.b64encode(last.root).decode(),
    )
    work.record(dropped.tenant_id, envelope, by)


async def count_days(session: AsyncSession, tenant_id: str, before: date) -> Counter[date]:
    """The number of rows on each of the tenant's days before `before`, see `_is_past`."""
    stored = union_all(
        select(JournalEntry.day, JournalEntry.rows).where(
            _is_past(JournalEntry, tenant_id, before)
        ),
        select(SegmentEntry.day, SegmentEntry.rows).where(
            _is_past(SegmentEntry, tenant_id, before), SegmentEntry.retired_at.is_(None)
        ),
    ).subquery()
    counted = await session.execute(
        select(stored.c.day, func.sum(stored.c.rows)).group_by(stored.c.day)
    )
    return Counter({day: int(rows) for day, rows in counted})


async def drop_days(
    session: AsyncSession, tenant_id: str, before: date, retired_at: datetime
) -> Counter[date]:
    """Hide the days that `count_days` counts from new readers; returns the rows of each day.

    Segments are retired (see `service.store.catalog.retire_segments`). Journal batches are
    deleted, because readers hold copies of them.
    """
    retired = await session.execute(
        update(SegmentEntry)
        .where(_is_past(SegmentEntry, tenant_id, before), SegmentEntry.retired_at.is_(None))
        .values(retired_at=retired_at)
        .returning(SegmentEntry.day, SegmentEntry.rows)
    )
    deleted = await session.execute(
        delete(JournalEntry)
        .where(_is_past(JournalEntry, tenant_id, before))
        .returning(JournalEntry.day, JournalEntry.rows)
    )
    # Without its key the hashes of a day that stay tell nothing of its rows, lost ones included.
    for table in (LostSegment, EvidenceDayKey):
        await session.execute(delete(table).where(_is_past(table, tenant_id, before)))
    # Alerts name rows and values that go now.
    is_old = (AlertFiring.tenant_id == tenant_id) & (AlertFiring.fired_at < midnight(before))
    await session.execute(delete(AlertFiring).where(is_old))
    rows = Counter[date]()
    for day, count in [*retired, *deleted]:
        rows[day] += count
    return rows


async def _unsent(
    session: AsyncSession, tenant_id: str, before: date
) -> tuple[int, Sequence[Stream]]:
    """The last seq on the tenant's days before `before`, and the streams that are not that far."""
    last = union_all(
        select(func.max(JournalEntry.first_seq + JournalEntry.rows - 1).label("seq")).where(
            _is_past(JournalEntry, tenant_id, before)
        ),
        select(func.max(SegmentEntry.max_seq)).where(
            _is_past(SegmentEntry, tenant_id, before), SegmentEntry.retired_at.is_(None)
        ),
    ).subquery()
    last_seq = await session.scalar(select(func.max(last.c.seq))) or 0
    behind = select(Stream).where(Stream.tenant_id == tenant_id, Stream.cursor < last_seq)
    return last_seq, (await session.scalars(behind)).all()


def _is_past(
    table: type[EvidenceDayKey | JournalEntry | LostSegment | SegmentEntry],
    tenant_id: str,
    before: date,
) -> ColumnElement[bool]:
    """Whether a line is of the tenant and a day before `before`, and was not received after it.

    A clock that was far behind dated rows long before they were received, see MisdatedDay.
    """
    received_since = select(MisdatedDay.day).where(
        MisdatedDay.tenant_id == tenant_id, MisdatedDay.received_at >= midnight(before)
    )
    return and_(table.tenant_id == tenant_id, table.day < before, table.day.not_in(received_since))
