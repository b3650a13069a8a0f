"""The job that evaluates alert rules, and records where they fire.

Under a lease of its own, never on the path of a request. A firing and its audit row are one commit,
so that none is lost or doubled when the process ends in between: counts are of stored rows, and a
window that is counted again fires at the same minute, at which it has fired already.

A round evaluates the rules that may fire in it: those that count, of organisations with new rows
or rejections; silences once an hour; checks once a minute. An organisation of which nothing is new
costs the round one look at an index.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import structlog
from sqlalchemy import ColumnElement, SelectBase, exists, func, or_, select, union
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from analytics.model.alert_envelopes import AlertFired
from analytics.model.filters import InvalidQuery, Query, mask
from analytics.model.instants import format_us, utc_day
from analytics.query.buckets import Bucket
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from service.access.callers import service_context
from service.audit.alerts.counting import count, revoked_repositories, rows_of
from service.audit.alerts.firings import (
    SILENT_FOR,
    Fired,
    Fires,
    Firing,
    bursts,
    silences,
    usual_before,
)
from service.audit.alerts.rules import CHECKS, COUNTING, AlertRule, Kind, rule_of
from service.audit.clock_guard import ClockGuard
from service.audit.leased_job import DeferredErrors, LeasedJob
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.core.ids import new_id
from service.store.lease import HeldLease
from service.store.tables import (
    AlertFiring,
    AlertRuleEntry,
    Fact,
    JournalEntry,
    Organisation,
    RejectedSubject,
    SegmentEntry,
)

FIRINGS_AN_HOUR_MAX: Final = 100
"""A rule that fires more often says nothing: it is logged, and fires again in the next hour."""

LATE_MAX: Final = timedelta(days=1)
"""Rows that were created so long before they arrived do not fire: they are history."""

AHEAD_MAX: Final = timedelta(days=1)
GAP_MAX: Final = timedelta(minutes=15)
"""After a pause that is longer, nothing is known of a silence before it."""

NEWS_MAX: Final = 1_000
"""Of so many rows it is looked at which rules have any of them: it takes a tenth of a count."""

MARK_EVERY: Final = timedelta(minutes=5)
SEAL_LATE_FACTOR: Final = 4

_WATCHED: Final = "alerts_watched"
_COUNTED: Final = "alerts_counted"
_log = structlog.get_logger(__name__)

_Due = Mapping[str, tuple[Organisation, list[AlertRuleEntry]]]
"""The organisations with rules that are due, and these."""


class _Mark(NamedTuple):
    """Rules are evaluated `since` then without a pause, and were `before` last.

    All rows up to the seq `counted` are counted, and so are all that were created before `oldest`.
    """

    since: datetime
    before: datetime
    counted: int
    oldest: datetime


class _Round(NamedTuple):
    """What the rules of a round are evaluated with."""

    lease: HeldLease
    now: datetime
    mark: _Mark
    faults: DeferredErrors


class _Watched(NamedTuple):
    """A rule in a round."""

    round: _Round
    log: TenantLog
    entry: AlertRuleEntry
    rule: AlertRule


@dataclass(eq=False)
class AlertWatcher(LeasedJob):
    """Evaluates under the lease, so that any number of processes may run one."""

    _clock_guard: ClockGuard
    _last: tuple[int, datetime] | None = field(default=None, init=False)
    """The newest seq of all organisations, and the minute, of the last round."""
    _behind: dict[str, int] = field(default_factory=dict, init=False)
    """Organisations that could not be evaluated, and up to where their rows are counted."""

    async def watch_due(self) -> None:
        """Evaluate the rules that are due: there are new rows, or it is a new minute.

        An organisation whose rows cannot be read does not keep the others waiting: the first such
        fault is raised after all have been tried. Raises LeaseTaken.
        """
        now = self._clock()
        current = (await self._store.last_seq(), Bucket.MINUTE.start(now))
        if current == self._last and not self._behind:
            return
        async with self._store.read() as session:
            has_rules = await session.scalar(select(exists().where(_IS_ON)))
            mark = await self._read_mark(session, now)
        due = await self._list_due(now, mark) if has_rules else {}
        faults = DeferredErrors("alerts_not_evaluated")
        if due or (has_rules and now - mark.before >= MARK_EVERY):
            async with self._lease.hold() as lease, lease.renewed():
                await self._store_mark(lease, mark, now)
                for org, rules in due.values():
                    await self._watch(_Round(lease, now, mark, faults), org, rules)
        self._last = current
        faults.raise_first()

    async def _read_mark(self, session: AsyncSession, now: datetime) -> _Mark:
        stored, counted = [await session.get(Fact, name) for name in (_WATCHED, _COUNTED)]
        since = before = now - MARK_EVERY
        if stored is not None:
            since, before = map(datetime.fromisoformat, stored.value.split())
        return _Mark(
            since if stored is not None and now - before <= GAP_MAX else now,
            before,
            self._last[0] if self._last else int(counted.value) if counted else -1,
            min(before - SILENT_FOR, now - LATE_MAX),
        )

    async def _store_mark(self, lease: HeldLease, mark: _Mark, now: datetime) -> None:
        if now - mark.before >= MARK_EVERY:
            times = f"{mark.since.isoformat()} {now.isoformat()}"
            counted = min([mark.counted, *self._behind.values()])  # before this round
            async with lease.write() as work:
                for name, value in ((_WATCHED, times), (_COUNTED, str(counted))):
                    await work.session.merge(Fact(name=name, value=value))

    async def _list_due(self, now: datetime, mark: _Mark) -> _Due:
        before = self._last and self._last[1]
        lately = now - LATE_MAX if before is None else before - MARK_EVERY
        is_due = [
            *(_is(kind, [*self._behind]) for kind in COUNTING),
            _is("count", _with_rows(mark)),
            _is("rejected", _with_rejections(lately)),
        ]
        if before is None or before < Bucket.MINUTE.start(now):
            late = now - SEAL_LATE_FACTOR * timedelta(seconds=self._settings.seal_age_s)
            waiting = select(JournalEntry.tenant_id).where(JournalEntry.received_at < late)
            is_due += [_is("seal", waiting), _is("integrity", _WITH_DAMAGE)]
            if await self._clock_guard.refusal() is not None:
                is_due.append(_is("clock"))
        if before is None or before < Bucket.HOUR.start(now):
            is_due.append(_is("silence"))
        query = (
            select(Organisation, AlertRuleEntry)
            .join(AlertRuleEntry, AlertRuleEntry.tenant_id == Organisation.id)
            .where(_IS_ON, or_(*is_due))
            .order_by(Organisation.id, AlertRuleEntry.id)
        )
        due: dict[str, tuple[Organisation, list[AlertRuleEntry]]] = {}
        async with self._store.read() as session:
            for org, entry in await session.execute(query):
                due.setdefault(org.id, (org, []))[1].append(entry)
        return due

    async def _watch(
        self, round_: _Round, org: Organisation, rules: Sequence[AlertRuleEntry]
    ) -> None:
        """Evaluate each of the organisation's rules: one that fails keeps no other waiting."""
        counted = self._behind.get(org.id, round_.mark.counted)
        done, faults, day = 0, round_.faults, utc_day(round_.now)
        with faults.of(org.id, day):
            log, news = await open_log(self._store, self._lake, org, round_.now), None
            touched = _touched(log.snapshot, counted, round_.mark, round_.now)
            with faults.of(org.id, day):
                news = await log.page(Query(since=touched), NEWS_MAX + 1)
            for entry in rules:
                await asyncio.sleep(0)  # a hundred rules of many filters take a fifth of a second
                with faults.of(org.id, day):
                    await self._evaluate(round_, log, entry, touched, news)
                    done += 1
        if done == len(rules):
            self._behind.pop(org.id, None)
        else:
            self._behind[org.id] = counted

    async def _evaluate(
        self,
        round_: _Round,
        log: TenantLog,
        entry: AlertRuleEntry,
        touched: datetime,
        news: pa.Table | None,
    ) -> None:
        try:
            rule = rule_of(entry)
            watched = _Watched(round_, log, entry, rule)
            if rule.kind in CHECKS:
                await self._check(watched)
            elif rule.kind == "silence":
                await self._listen(watched)
            elif rule.kind == "rejected":
                await self._count(watched, round_.now - LATE_MAX)
            elif news is None or _may_fire(rule, news, touched, round_.now + AHEAD_MAX):
                await self._count(watched, touched)
        except (Invalid, InvalidQuery, msgspec.DecodeError) as refusal:
            # Also a rule that a later version stored, or whose time zone this machine lacks. Its
            # rows count as counted, or it would be too many for a day.
            _log.warning("alert_rule_refused", rule=entry.id, reason=str(refusal))

    async def _count(self, watched: _Watched, touched: datetime) -> None:
        now, log, rule = watched.round.now, watched.log, watched.rule
        since = Bucket.MINUTE.start(max(touched, watched.entry.on_since or now))
        counts = await count(self._store, log, rule, since - rule.length, now + AHEAD_MAX)
        if counts.num_rows:
            fired, most = (
                await self._fired(watched.entry.id, since - SILENT_FOR),
                FIRINGS_AN_HOUR_MAX,
            )
            await self._fire(watched, lambda: bursts(rule, counts, since, fired, most))

    async def _listen(self, watched: _Watched) -> None:
        """Fire for the silence that ended with the last full hour."""
        (_, now, mark, _), log, rule = watched.round, watched.log, watched.rule
        hour, most = Bucket.HOUR.start(now), FIRINGS_AN_HOUR_MAX
        if hour - rule.length < max(mark.since, watched.entry.on_since or now):
            return
        before = usual_before(rule, log.org.tier)
        counts = await count(self._store, log, rule, hour - max(before) - rule.length, hour)
        fired = await self._fired(watched.entry.id, hour - max(SILENT_FOR, rule.length))
        await self._fire(watched, lambda: silences(rule, counts, [hour], before, fired, most))

    async def _check(self, watched: _Watched) -> None:
        """Fire, as the service's own check fails, unless that is known already."""
        now, entry = watched.round.now, watched.entry
        at = Bucket.MINUTE.start(now)
        # One that is closed in the minute in which it fired is not fired again in it.
        is_known = (AlertFiring.state != "closed") | (AlertFiring.fired_at >= at)
        known = exists().where(AlertFiring.rule_id == entry.id, is_known)
        async with self._store.read() as session:
            if await session.scalar(select(known)):
                return
        await self._record(watched, [(Firing("", at, at, now, 0), [])], 1)

    async def _fired(self, rule_id: str, since: datetime) -> Fired:
        query = select(AlertFiring.key, AlertFiring.fired_at).where(
            AlertFiring.rule_id == rule_id, AlertFiring.fired_at >= since
        )
        async with self._store.read() as session:
            return [(key, at) for key, at in await session.execute(query)]

    async def _fire(self, watched: _Watched, find: Callable[[], Fires]) -> None:
        log, rule = watched.log, watched.rule
        fires = await log.compute(find)
        if fires.total:
            revoked = await revoked_repositories(self._store, rule, log.org.id)
            # After a pause there may be many: only the last are told.
            found = [(each, await rows_of(log, rule, each, revoked)) for each in fires.last]
            await self._record(watched, found, fires.total)

    async def _record(
        self, watched: _Watched, firings: Sequence[tuple[Firing, list[str]]], fired: int
    ) -> None:
        """One commit for the last of so many, and their rows, if the rule is still the same."""
        entry, rule = watched.entry, watched.rule
        by = service_context(self._settings.platform_tenant_id)
        async with watched.round.lease.write() as work:
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
                work.record(entry.tenant_id, _envelope(rule, alert), by, subject=alert.id)


_IS_ON: Final = AlertRuleEntry.on_since.is_not(None)
_ORG: Final = aliased(Organisation)
_WITH_DAMAGE: Final = union(
    select(SegmentEntry.tenant_id).where(SegmentEntry.damage.is_not(None)),
    select(JournalEntry.tenant_id).where(JournalEntry.damage.is_not(None)),
)


def _is(kind: Kind, tenants: SelectBase | Sequence[str] | None = None) -> ColumnElement[bool]:
    """Whether a rule is of this kind, and of one of `tenants`."""
    # JSON escapes quotes within texts.
    is_kind = AlertRuleEntry.definition.contains(f'"kind":"{kind}"')
    return is_kind if tenants is None else AlertRuleEntry.tenant_id.in_(tenants) & is_kind


def _with_rows(mark: _Mark) -> SelectBase:
    """The organisations with rows that are not counted."""
    is_sealed = exists().where(  # since then, or imported
        SegmentEntry.tenant_id == _ORG.id,
        SegmentEntry.retired_at.is_(None),
        SegmentEntry.day >= utc_day(mark.oldest),
        SegmentEntry.max_seq > mark.counted,
    )
    in_journal = select(JournalEntry.tenant_id).where(JournalEntry.first_seq > mark.counted)
    return union(in_journal, select(_ORG.id).where(is_sealed))


def _with_rejections(since: datetime) -> SelectBase:
    """The organisations with rejected jobs `since` then."""
    is_rejected = exists().where(
        RejectedSubject.tenant_id == _ORG.id,
        RejectedSubject.is_verified.is_(True),
        RejectedSubject.last_at >= since,
    )
    return select(_ORG.id).where(is_rejected)


def _may_fire(rule: AlertRule, news: pa.Table, since: datetime, until: datetime) -> bool:
    """Whether the newest rows `since` then, `news`, may have one of `rule`."""
    is_sure = news.num_rows <= NEWS_MAX and not rule.is_of_revoked
    return not is_sure or any(mask(rule.rows(since, until, ()), news).to_pylist())


def _touched(snapshot: Snapshot, counted: int, mark: _Mark, now: datetime) -> datetime:
    """The oldest instant at which there may be rows that were not counted yet."""
    parts: list[Segment | JournalBatch] = [*snapshot.segments, *snapshot.batches]
    oldest = min((part.min_created_at for part in parts if part.max_seq > counted), default=now)
    return max(oldest, mark.oldest)


def alert_of(
    rule: AlertRule, firing: Firing, entry: AlertRuleEntry | None = None, row_ids: str = ""
) -> AlertFiring:
    """The alert of a firing of `entry`; None: it is only tried, and gets no id."""
    return AlertFiring(
        id="" if entry is None else new_id("alert"),
        tenant_id="" if entry is None else entry.tenant_id,
        rule_id="" if entry is None else entry.id,
        rule_name=rule.name,
        **firing._asdict(),
        row_ids=row_ids,
        query=rule.address(firing.key, firing.since, firing.until),
        state="open",
    )


def _envelope(rule: AlertRule, alert: AlertFiring) -> AlertFired:
    as_is = {name: getattr(alert, name) for name in ("rule_id", "key", "rows", "usual", "query")}
    return AlertFired(
        alert_id=alert.id,
        rule=alert.rule_name,
        kind=rule.kind,
        since=format_us(alert.since),
        until=format_us(alert.until),
        row_ids=alert.row_ids.split(),
        **as_is,
    )
