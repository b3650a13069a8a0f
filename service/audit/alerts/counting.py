"""The rows of alert rules: counted over time for what fires, and named once it did."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import pyarrow as pa
from sqlalchemy import select

from analytics.model.filters import among
from analytics.model.schema import audit_id
from analytics.query.aggregates import by_step
from analytics.query.scans import Dense
from service.audit.alerts.firings import Firing
from service.audit.alerts.rules import AlertRule
from service.audit.refusals import RULE_TOO_FINE, RULE_TOO_WIDE
from service.audit.tenant_log import TenantLog
from service.store.store import Store
from service.store.tables import Binding, RejectedSubject

ROWS_OF_FIRING_MAX: Final = 100
ROWS_READ_MAX: Final = 50_000
"""How many rows of its filters a rule may look at one by one."""

GROUPS_MAX: Final = 500_000
"""How many counts, by time and value, of rows that may fire a rule may have."""


async def count(
    store: Store, log: TenantLog, rule: AlertRule, since: datetime, until: datetime
) -> pa.Table:
    """The rows of `rule` by bucket and key, see `aggregates.by_step`.

    Raises RULE_TOO_WIDE, RULE_TOO_FINE, QueryTooSlow, StoreFault.
    """
    if rule.kind == "rejected":
        return _counted(rule, await _rejections(store, log.org.id, since))
    revoked = await revoked_repositories(store, rule, log.org.id)
    query = rule.rows(since, until, revoked)
    if not rule.reads_rows:
        dense = Dense(GROUPS_MAX + 1)
        if rule.kind == "count":  # others are in no full window
            dense = Dense(GROUPS_MAX + 1, rule.at_least, rule.length // rule.bucket.length - 1)
        counts = await log.series(query, rule.bucket, rule.column, dense)
        if counts.num_rows > GROUPS_MAX:
            raise RULE_TOO_FINE
        return counts
    rows = await log.page(query, ROWS_READ_MAX + 1)
    if rows.num_rows > ROWS_READ_MAX:
        raise RULE_TOO_WIDE(limit=ROWS_READ_MAX)
    included = await log.compute(lambda: _included(rule, rows))
    return _counted(rule, [(at, key) for _, at, key in included])


def _counted(rule: AlertRule, rows: Sequence[tuple[datetime, str]]) -> pa.Table:
    steps = pa.array([rule.bucket.number(at) for at, _ in rows], pa.int64())
    return by_step(steps, pa.array([key for _, key in rows], pa.string()))


def _included(rule: AlertRule, rows: pa.Table) -> list[tuple[int, datetime, str]]:
    """The seq, instant and key of those of `rows` that meet the rule's other conditions."""
    keys = [""] * rows.num_rows if rule.column is None else rows[rule.column].to_pylist()
    columns = (rows[name].to_pylist() for name in ("seq", "created_at", "payload"))
    return [
        (seq, at, key or "")
        for seq, at, payload, key in zip(*columns, keys, strict=True)
        if rule.includes(at, payload)
    ]


async def _rejections(store: Store, tenant_id: str, since: datetime) -> list[tuple[datetime, str]]:
    """The CI jobs whose token was rejected last, though its issuer signed it."""
    query = select(RejectedSubject.last_at, RejectedSubject.sub).where(
        RejectedSubject.tenant_id == tenant_id,
        RejectedSubject.is_verified.is_(True),
        RejectedSubject.last_at >= since,
    )
    async with store.read() as session:
        found = (await session.execute(query)).all()
    return [(at, sub or "") for at, sub in found]


async def rows_of(
    log: TenantLog, rule: AlertRule, firing: Firing, revoked: Sequence[str]
) -> list[str]:
    """The ids of the newest rows of a firing; a rejection is none."""
    if rule.kind == "rejected":
        return []
    query = rule.rows(firing.since, firing.until, revoked)
    if rule.column is not None and firing.key:
        others = (each for each in query.conditions if each.column != rule.column)
        query = replace(query, conditions=(*others, among(rule.column, [firing.key])))
    # No filter is of rows without a value.
    reads_rows = rule.reads_rows or (rule.column is not None and not firing.key)
    rows = await log.page(query, ROWS_READ_MAX if reads_rows else ROWS_OF_FIRING_MAX)
    included = await log.compute(lambda: _included(rule, rows))
    ids = [audit_id(seq) for seq, _, key in included if key == firing.key]
    return ids[:ROWS_OF_FIRING_MAX]


async def revoked_repositories(store: Store, rule: AlertRule, tenant_id: str) -> list[str]:
    """The repositories of which every binding of the organisation is revoked, if `rule` asks."""
    if not rule.is_of_revoked:
        return []
    mine = select(Binding.repository_id).where(Binding.tenant_id == tenant_id)
    query = mine.where(Binding.revoked_at.is_not(None)).except_(
        mine.where(Binding.revoked_at.is_(None))
    )
    async with store.read() as session:
        return [each for each in await session.scalars(query) if each is not None]
