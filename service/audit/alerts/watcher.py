"""The job that evaluates alert rules, and records where they fire.

Under a lease of its own, never on the path of a request. A firing and its audit row are one commit,
so that none is lost or doubled when the process ends in between: counts are of stored rows, and a
window that is counted again fires at the same minute, at which it has fired already.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.alert_envelopes import AlertFired
from analytics.model.filters import Condition, Query, Term
from analytics.model.instants import format_us, utc_day
from analytics.model.schema import audit_id
from analytics.query.buckets import Bucket
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.access.callers import service_context
from service.audit.alerts.firings import SILENT_FOR, WEEKS, Firing, bursts, silences
from service.audit.alerts.rules import CHECKS, REVOKED, AlertRule, rule_of
from service.audit.clock_guard import ClockGuard
from service.audit.lake import Lake
from service.audit.leased_job import DeferredErrors
from service.audit.refusals import RULE_TOO_FINE, RULE_TOO_WIDE
from service.audit.tenant_log import TenantLog, open_log
from service.core.clock import Clock
from service.core.ids import new_id
from service.core.settings import Settings
from service.store.lease import HeldLease, LeaseKeeper
from service.store.store import Store
from service.store.tables import (
    AlertFiring,
    AlertRuleEntry,
    Binding,
    Fact,
    JournalEntry,
    Organisation,
    RejectedSubject,
    SegmentEntry,
)

ROWS_OF_FIRING_MAX: Final = 100
ROWS_READ_MAX: Final = 50_000
"""How many rows of its filters a rule may look at one by one."""

FIRINGS_AN_HOUR_MAX: Final = 100
"""A rule that fires more often says nothing: it is logged, and fires again in the next hour."""

GROUPS_MAX: Final = 500_000
"""How many counts, by time and value, a rule may have."""

LATE_MAX: Final = timedelta(days=1)
"""Rows that were created so long before they arrived do not fire: they are history."""

AHEAD_MAX: Final = timedelta(days=1)
GAP_MAX: Final = timedelta(minutes=15)
"""After a pause that is longer, nothing is known of a silence before it."""

MARK_EVERY: Final = timedelta(minutes=5)
SEAL_LATE_FACTOR: Final = 4

_WATCHED: Final = "alerts_watched"
_log = structlog.get_logger(__name__)


class AlertWatcher:
    """Evaluates under the lease, so that any number of processes may run one."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        lake: Lake,
        lease: LeaseKeeper,
        clock_guard: ClockGuard,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._lake = lake
        self._lease = lease
        self._clock_guard = clock_guard
        self._clock = clock
        self._by = service_context(settings.platform_tenant_id)
        self._last: tuple[int, datetime] | None = None
        """The newest seq of all organisations, and the minute, of the last evaluation."""
        self._counted: dict[tuple[str, datetime], int] = {}
        """By rule, as of its last change, the seq up to which its rows are counted.

        One that is not in it counts since the last mark.
        """
        self._listened: dict[str, datetime] = {}
        """By rule of a silence, the hour of its last evaluation."""

    async def watch_due(self) -> None:
        """Evaluate the rules of all organisations if there are new rows, or it is a new minute.

        An organisation whose rows cannot be read does not keep the others waiting: the first such
        fault is raised after all have been tried. Raises LeaseTaken.
        """
        now = self._clock()
        current = (await self._store.last_seq(), Bucket.MINUTE.start(now))
        if current == self._last:
            return
        async with self._store.read() as session:
            rules = await _list_on(session)
        if rules:
            faults = DeferredErrors("alerts_not_evaluated")
            async with self._lease.hold() as lease, lease.renewed():
                since, before = await self._mark(lease, now)
                for org, own in rules:
                    with faults.of(org.id, utc_day(now)):
                        await self._watch(lease, org, own, now, before, since, faults)
            faults.raise_first()
        self._last = current

    async def _mark(self, lease: HeldLease, now: datetime) -> tuple[datetime, datetime]:
        """Since when rules are evaluated without a pause, and when they last were before."""
        async with self._store.read() as session:
            stored = await session.get(Fact, _WATCHED)
        if stored is None:
            since = before = now
        else:
            since, before = map(datetime.fromisoformat, stored.value.split())
        if now - before > GAP_MAX:
            since = now
        if stored is None or now - before >= MARK_EVERY:
            async with lease.write() as work:
                value = f"{since.isoformat()} {now.isoformat()}"
                await work.session.merge(Fact(name=_WATCHED, value=value))
        return since, before

    async def _watch(
        self,
        lease: HeldLease,
        org: Organisation,
        rules: Sequence[AlertRuleEntry],
        now: datetime,
        before: datetime,
        since: datetime,
        faults: DeferredErrors,
    ) -> None:
        """Evaluate each of the organisation's rules: one that fails keeps no other waiting."""
        log = await open_log(self._store, self._lake, org, now)
        for entry in rules:
            with faults.of(org.id, utc_day(now)):
                try:
                    await self._evaluate(lease, log, entry, now, before, since)
                except (RULE_TOO_WIDE, RULE_TOO_FINE) as refusal:
                    _log.warning("alert_rule_refused", rule=entry.id, reason=str(refusal))

    async def _evaluate(
        self,
        lease: HeldLease,
        log: TenantLog,
        entry: AlertRuleEntry,
        now: datetime,
        before: datetime,
        since: datetime,
    ) -> None:
        rule, version = rule_of(entry), (entry.id, entry.changed_at)
        newest = max((part.max_seq for part in _parts(log.snapshot)), default=0)
        if rule.kind in CHECKS:
            await self._check(lease, entry, rule, now)
        elif rule.kind == "rejected":
            await self._count(lease, log, entry, rule, now - LATE_MAX, now)
        elif rule.kind == "silence":
            await self._listen(lease, log, entry, rule, now, since)
        elif newest > self._counted.get(version, -1):
            touched = _touched(log.snapshot, self._counted.get(version), before, now)
            try:
                await self._count(lease, log, entry, rule, touched, now)
            except (RULE_TOO_WIDE, RULE_TOO_FINE):
                self._counted[version] = newest  # or it would be too many for a day
                raise
            self._counted[version] = newest

    async def _count(
        self,
        lease: HeldLease,
        log: TenantLog,
        entry: AlertRuleEntry,
        rule: AlertRule,
        touched: datetime,
        now: datetime,
    ) -> None:
        since = Bucket.MINUTE.start(max(touched, entry.on_since or now))
        counts = await count(self._store, log, rule, since - rule.length, now + AHEAD_MAX)
        if not counts:
            return
        fired = await self._fired(entry.id, since - SILENT_FOR)
        found = await log.compute(lambda: bursts(rule, counts, since, fired))
        await self._fire(lease, log, entry, rule, found)

    async def _listen(
        self,
        lease: HeldLease,
        log: TenantLog,
        entry: AlertRuleEntry,
        rule: AlertRule,
        now: datetime,
        since: datetime,
    ) -> None:
        """Fire for the silence that ended with the last full hour, once in this hour."""
        hour = Bucket.HOUR.start(now)
        known_since = max(since, entry.on_since or now)
        if self._listened.get(entry.id) == hour or hour - rule.length < known_since:
            return
        first = hour - timedelta(weeks=WEEKS) - rule.length
        counts = await count(self._store, log, rule, first, hour)
        fired = await self._fired(entry.id, hour - max(SILENT_FOR, rule.length))
        found = await log.compute(lambda: silences(rule, counts, [hour], fired))
        await self._fire(lease, log, entry, rule, found)
        self._listened[entry.id] = hour

    async def _check(
        self, lease: HeldLease, entry: AlertRuleEntry, rule: AlertRule, now: datetime
    ) -> None:
        """Fire if the service's own check fails, unless that is known already."""
        at = Bucket.MINUTE.start(now)
        async with self._store.read() as session:
            failed = await _failed(session, rule.kind, entry.tenant_id, now, self._settings)
            known = await session.scalar(
                select(AlertFiring.id).where(
                    AlertFiring.rule_id == entry.id,
                    # One that is closed in the minute in which it fired is not fired again in it.
                    (AlertFiring.state != "closed") | (AlertFiring.fired_at >= at),
                )
            )
        if rule.kind == "clock":
            failed = await self._clock_guard.refusal() is not None
        if failed and known is None:
            firing = Firing("", at, at, now, 0)
            await self._record(lease, entry, rule, [(firing, [])], 1)

    async def _fired(self, rule_id: str, since: datetime) -> Mapping[str, Sequence[datetime]]:
        query = select(AlertFiring.key, AlertFiring.fired_at).where(
            AlertFiring.rule_id == rule_id, AlertFiring.fired_at >= since
        )
        fired: dict[str, list[datetime]] = defaultdict(list)
        async with self._store.read() as session:
            for key, at in await session.execute(query):
                fired[key].append(at)
        return fired

    async def _fire(
        self,
        lease: HeldLease,
        log: TenantLog,
        entry: AlertRuleEntry,
        rule: AlertRule,
        firings: Sequence[Firing],
    ) -> None:
        if not firings:
            return
        revoked = await revoked_repositories(self._store, rule, log.org.id)
        told = firings[-FIRINGS_AN_HOUR_MAX:]  # after a pause there may be many old ones
        found = [(each, await rows_of(log, rule, each, revoked)) for each in told]
        await self._record(lease, entry, rule, found, len(firings))

    async def _record(
        self,
        lease: HeldLease,
        entry: AlertRuleEntry,
        rule: AlertRule,
        firings: Sequence[tuple[Firing, list[str]]],
        fired: int,
    ) -> None:
        """One commit for the last of so many, and their rows, if the rule is still the same."""
        async with lease.write() as work:
            current = await work.session.get(AlertRuleEntry, entry.id)
            if current is None or current.changed_at != entry.changed_at:
                return
            lately = select(func.count()).where(
                AlertFiring.rule_id == entry.id, AlertFiring.fired_at > work.now - SILENT_FOR
            )
            room = max(0, FIRINGS_AN_HOUR_MAX - (await work.session.scalar(lately) or 0))
            if room < fired:
                _log.warning("alert_fires_too_often", rule=entry.id, left_out=fired - room)
            for firing, row_ids in firings[max(0, len(firings) - room) :]:
                alert = alert_of(rule, firing, entry, " ".join(row_ids))
                work.session.add(alert)
                work.record(entry.tenant_id, _envelope(rule, alert), self._by, subject=alert.id)


async def _list_on(session: AsyncSession) -> list[tuple[Organisation, list[AlertRuleEntry]]]:
    """The organisations with rules that are on, and these."""
    query = (
        select(Organisation, AlertRuleEntry)
        .join(AlertRuleEntry, AlertRuleEntry.tenant_id == Organisation.id)
        .where(AlertRuleEntry.on_since.is_not(None))
        .order_by(Organisation.id, AlertRuleEntry.id)
    )
    found: dict[str, tuple[Organisation, list[AlertRuleEntry]]] = {}
    for org, entry in await session.execute(query):
        found.setdefault(org.id, (org, []))[1].append(entry)
    return list(found.values())


def _parts(snapshot: Snapshot) -> list[Segment | JournalBatch]:
    return [*snapshot.segments, *snapshot.batches]


def _touched(snapshot: Snapshot, counted: int | None, before: datetime, now: datetime) -> datetime:
    """The oldest instant at which there may be rows that were not counted yet."""
    if counted is None:
        return min(before - SILENT_FOR, now - LATE_MAX)
    parts = _parts(snapshot)
    oldest = min((part.min_created_at for part in parts if part.max_seq > counted), default=now)
    return max(oldest, now - LATE_MAX)


async def count(
    store: Store, log: TenantLog, rule: AlertRule, since: datetime, until: datetime
) -> Sequence[tuple[datetime, str, int]]:
    """The rows of `rule` by bucket and key.

    Raises RULE_TOO_WIDE, RULE_TOO_FINE, QueryTooSlow, StoreFault.
    """
    if rule.kind == "rejected":
        return await _rejections(store, log.org.id, since)
    revoked = await revoked_repositories(store, rule, log.org.id)
    query = rule.rows(since, until, revoked)
    if not rule.reads_rows:
        counts = await log.series(query, rule.bucket, rule.column)
        if len(counts) > GROUPS_MAX:
            raise RULE_TOO_FINE
        return counts
    rows = await log.page(query, ROWS_READ_MAX + 1)
    if rows.num_rows > ROWS_READ_MAX:
        raise RULE_TOO_WIDE(limit=ROWS_READ_MAX)
    included = await log.compute(lambda: _included(rule, rows))
    return [(rule.bucket.start(at), key, 1) for _, at, key in included]


def _included(rule: AlertRule, rows: pa.Table) -> list[tuple[int, datetime, str]]:
    """The seq, instant and key of those of `rows` that meet the rule's other conditions."""
    keys = [""] * rows.num_rows if rule.column is None else rows[rule.column].to_pylist()
    columns = (rows[name].to_pylist() for name in ("seq", "created_at", "payload"))
    return [
        (seq, at, key or "")
        for seq, at, payload, key in zip(*columns, keys, strict=True)
        if rule.includes(at, payload)
    ]


async def _rejections(
    store: Store, tenant_id: str, since: datetime
) -> list[tuple[datetime, str, int]]:
    """The CI jobs whose token was rejected last, though its issuer signed it."""
    query = select(RejectedSubject.last_at, RejectedSubject.sub).where(
        RejectedSubject.tenant_id == tenant_id,
        RejectedSubject.is_verified.is_(True),
        RejectedSubject.last_at >= since,
    )
    async with store.read() as session:
        found = (await session.execute(query)).all()
    return [(Bucket.MINUTE.start(at), sub or "", 1) for at, sub in found]


async def rows_of(
    log: TenantLog, rule: AlertRule, firing: Firing, revoked: Sequence[str]
) -> list[str]:
    """The ids of the newest rows of a firing; a rejection is none."""
    if rule.kind == "rejected":
        return []
    query = rule.rows(firing.since, firing.until, revoked)
    if rule.column is not None and firing.key:
        query = _of_key(query, rule.column, firing.key)
    # No filter is of rows without a value.
    reads_rows = rule.reads_rows or (rule.column is not None and not firing.key)
    rows = await log.page(query, ROWS_READ_MAX if reads_rows else ROWS_OF_FIRING_MAX)
    included = await log.compute(lambda: _included(rule, rows))
    ids = [audit_id(seq) for seq, _, key in included if key == firing.key]
    return ids[:ROWS_OF_FIRING_MAX]


def _of_key(query: Query, column: str, key: str) -> Query:
    """`query` over the rows whose `column` is `key`."""
    others = (each for each in query.conditions if each.column != column)
    term = Term(key, is_prefix=False, is_negated=False)
    return replace(query, conditions=(*others, Condition(column, (term,))))


async def revoked_repositories(store: Store, rule: AlertRule, tenant_id: str) -> list[str]:
    """The repositories of which every binding of the organisation is revoked, if `rule` asks."""
    if REVOKED not in rule.query:
        return []
    mine = select(Binding.repository_id).where(Binding.tenant_id == tenant_id)
    query = mine.where(Binding.revoked_at.is_not(None)).except_(
        mine.where(Binding.revoked_at.is_(None))
    )
    async with store.read() as session:
        return [each for each in await session.scalars(query) if each is not None]


async def _failed(
    session: AsyncSession, kind: str, tenant_id: str, now: datetime, settings: Settings
) -> bool:
    """Whether the check `kind` of the stored log of an organisation fails."""
    if kind == "seal":
        late = now - SEAL_LATE_FACTOR * timedelta(seconds=settings.seal_age_s)
        oldest = select(func.min(JournalEntry.received_at)).where(
            JournalEntry.tenant_id == tenant_id
        )
        at = await session.scalar(oldest)
        return at is not None and at < late
    for table in (SegmentEntry, JournalEntry):
        damaged = select(func.count()).where(
            table.tenant_id == tenant_id, table.damage.is_not(None)
        )
        if await session.scalar(damaged):
            return True
    return False


def alert_of(
    rule: AlertRule, firing: Firing, entry: AlertRuleEntry | None = None, row_ids: str = ""
) -> AlertFiring:
    """The alert of a firing of `entry`; None: it is only tried, and gets no id."""
    return AlertFiring(
        id="" if entry is None else new_id("alert"),
        tenant_id="" if entry is None else entry.tenant_id,
        rule_id="" if entry is None else entry.id,
        rule_name=rule.name,
        key=firing.key,
        fired_at=firing.at,
        since=firing.since,
        until=firing.until,
        rows=firing.rows,
        usual=firing.usual,
        row_ids=row_ids,
        query=rule.address(firing.key, firing.since, firing.until),
        state="open",
    )


def _envelope(rule: AlertRule, alert: AlertFiring) -> AlertFired:
    return AlertFired(
        alert_id=alert.id,
        rule_id=alert.rule_id,
        rule=alert.rule_name,
        kind=rule.kind,
        key=alert.key,
        rows=alert.rows,
        usual=alert.usual,
        since=format_us(alert.since),
        until=format_us(alert.until),
        query=alert.query,
        row_ids=alert.row_ids.split(),
    )
