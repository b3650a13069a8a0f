"""Alerts: rules over the audit log, what they would have found, and where they fired."""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import Meta
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.alert_envelopes import AlertHandled, AlertRuleChanged
from analytics.model.rows import AuditContext
from analytics.query.buckets import Bucket
from service.access.roles import Capability
from service.audit.alerts.counting import count
from service.audit.alerts.firings import NOTHING_USUAL, Fires, bursts, silences, usual_before
from service.audit.alerts.rules import CHECKS, AlertRule, parse_rule, rule_of
from service.audit.alerts.watcher import alert_of
from service.audit.refusals import QUERY_REFUSALS, RULE_TOO_FINE, RULE_TOO_WIDE
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.core.errors import Conflict, NotFound, errors_at
from service.core.ids import new_id
from service.core.text_rules import NOTE_INVALID, REASON_MAX, parse_note
from service.store.store import UnitOfWork
from service.store.tables import AlertFiring, AlertRuleEntry, Organisation
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, PageCursor, Parsed, Request, TimestampUs
from service.web.paging import ListCursors, newest_page
from service.web.refusals import INVALID_CURSOR

RULES_MAX: Final = 100
DAYS_MAX: Final = 90
LISTED_MAX: Final = 500
WINDOWS_MAX: Final = 300_000
"""How many windows of a silence are tried: an hour each, for each value."""

RULE_NOT_FOUND: Final = NotFound.of("Alert rule not found for this org")
RULE_EXISTS: Final = Conflict.of("an alert rule of this name exists", field="name")
TOO_MANY_RULES: Final = Conflict.of(
    "limit of {limit} alert rules reached: delete one first", limit=RULES_MAX
)
ALERT_NOT_FOUND: Final = NotFound.of("Alert not found for this org")

resource = Resource("alerts", "/alerts", Tag.ALERTS, AuditServices)

State = Literal["open", "acknowledged", "closed"]


class AlertRuleForm(Answer):
    """An alert rule. `changed_by` is null for one as shipped, which is off and not stored yet."""

    id: str | None
    rule: AlertRule
    changed_by: str | None = None
    changed_at: TimestampUs | None = None

    @classmethod
    def of(cls, entry: AlertRuleEntry) -> Self:
        """A stored rule in the API's representation."""
        return cls.from_row(entry, rule=rule_of(entry))


class AlertRuleList(Answer):
    """The organisation's rules by name, and as `shipped` those to switch on by creating them."""

    org: str
    rules: list[AlertRuleForm]
    shipped: list[AlertRule]


class DeletedRule(Answer):
    """The id of the rule that was deleted."""

    deleted: str


class AlertEntry(Answer):
    """A rule fired: for how many rows, which ones, and what became of it.

    `query` finds the rows of its window on the audit page.
    """

    id: str | None
    rule_id: str | None
    rule: str
    key: str
    fired_at: TimestampUs
    since: TimestampUs
    until: TimestampUs
    rows: int
    usual: int | None
    row_ids: list[str]
    query: str
    state: State
    note: str | None = None
    handled_by: str | None = None
    handled_at: TimestampUs | None = None

    @classmethod
    def of(cls, alert: AlertFiring) -> Self:
        """An alert in the API's representation."""
        return cls.from_row(
            alert,
            id=alert.id or None,
            rule_id=alert.rule_id or None,
            rule=alert.rule_name,
            row_ids=alert.row_ids.split(),
        )


class AlertList(Answer):
    """Alerts, newest first. `next_cursor` is null on the last page."""

    org: str
    alerts: list[AlertEntry]
    next_cursor: str | None


class Backtest(Answer):
    """Where a rule would have fired in the last `days`, or since the retention floor."""

    org: str
    days: int
    count: int
    alerts: list[AlertEntry]


class AlertQuery(Request):
    """Which alerts."""

    state: Annotated[State, Meta(description="Only those in this state.")] | None = None
    limit: Annotated[
        int, Meta(ge=1, le=LISTED_MAX, description="At most so many; default 100.")
    ] = 100
    cursor: PageCursor | None = None


class BacktestRequest(Request):
    """A rule to try, and on how many days."""

    rule: AlertRule
    days: Annotated[int, Meta(ge=1, le=DAYS_MAX)] = 30


class HandledRequest(Request):
    """What becomes of an alert, and why."""

    state: Literal["acknowledged", "closed"]
    note: Annotated[str, Meta(extra_json_schema={"maxLength": REASON_MAX})] = ""


SHIPPED: Final = tuple(
    AlertRule(is_on=False, **rule)
    for rule in (
        {"name": "CI job rejected", "kind": "rejected", "window": "1m"},
        {"name": "First-party name asked of a registry", "query": "event=oss_first_party"},
        {
            "name": "New owner",
            "query": "event=member_added&event=member_role_changed",
            "where": ("role_after|role=owner",),
        },
        {
            "name": "API key created outside working hours",
            "query": "event=api_key_created",
            "outside": "Mon-Fri 08:00-18:00 UTC",
        },
        {
            "name": "Large export",
            "query": "event=audit_exported",
            "where": ("rows>=100000",),
            "per": "actor",
        },
        {
            "name": "Install from a repository whose bindings are revoked",
            "query": "event=install_allowed&repository_id=%40revoked",
            "per": "repository_id",
        },
    )
)
"""Rules as shipped: none is on until an organisation creates it."""


def parse_trial(given: dict[str, Any]) -> BacktestRequest:
    """The rule to try in a request's body. Raises Invalid."""
    rule = given.get("rule")
    if isinstance(rule, dict):
        with errors_at("rule"):
            given = given | {"rule": parse_rule(rule)}
    return BacktestRequest.parse(given)


@resource.get("list_alert_rules", "/rules", needs=Capability.AUDIT_READ, returns=AlertRuleList)
async def rules(call: Call[AuditServices]) -> AlertRuleList:
    """List the organisation's alert rules, and those that are shipped."""
    async with call.read() as session:
        mine = await list_rules(session, call.org.id)
    return AlertRuleList(
        org=call.org.slug, rules=[AlertRuleForm.of(entry) for entry in mine], shipped=[*SHIPPED]
    )


@resource.post(
    "create_alert_rule",
    "/rules",
    needs=Capability.STREAM_WRITE,
    body=Parsed(AlertRule, parse_rule, is_long=True),
    example={"name": "Many blocked installs", "query": "decision=BLOCKED", "at_least": 20},
    returns=AlertRuleForm,
    status=201,
    refuses=[RULE_EXISTS, TOO_MANY_RULES, NOTHING_USUAL],
)
async def create(call: WriteCall[AuditServices], rule: AlertRule) -> AlertRuleForm:
    """Create an alert rule. It counts rows from now on, unless `is_on` is false."""
    return AlertRuleForm.of(await set_rule(call.work, call.org, rule, call.by, None))


@resource.put(
    "change_alert_rule",
    "/rules/<alert_rule_id>",
    needs=Capability.STREAM_WRITE,
    body=Parsed(AlertRule, parse_rule, is_long=True),
    example={"name": "Many blocked installs", "query": "decision=BLOCKED", "at_least": 50},
    returns=AlertRuleForm,
    refuses=[RULE_NOT_FOUND, RULE_EXISTS, NOTHING_USUAL],
)
async def change(
    call: WriteCall[AuditServices], rule: AlertRule, alert_rule_id: str
) -> AlertRuleForm:
    """Replace an alert rule. It begins to count anew."""
    entry = await _rule(call.session, call.org, alert_rule_id)
    return AlertRuleForm.of(await set_rule(call.work, call.org, rule, call.by, entry))


@resource.delete(
    "delete_alert_rule",
    "/rules/<alert_rule_id>",
    needs=Capability.STREAM_WRITE,
    returns=DeletedRule,
    refuses=[RULE_NOT_FOUND],
)
async def delete(call: WriteCall[AuditServices], alert_rule_id: str) -> DeletedRule:
    """Delete an alert rule. Its alerts stay."""
    entry = await _rule(call.session, call.org, alert_rule_id)
    await call.session.delete(entry)
    call.work.record(
        call.org.id,
        AlertRuleChanged(rule_id=entry.id, rule=entry.name, change="deleted", definition=None),
        call.by,
        subject=entry.id,
    )
    return DeletedRule(deleted=alert_rule_id)


@resource.post_read(
    "backtest_alert_rule",
    "/backtest",
    needs=Capability.AUDIT_READ,
    body=Parsed(BacktestRequest, parse_trial, is_long=True),
    example={"rule": {"name": "Many blocked installs", "query": "decision=BLOCKED"}, "days": 30},
    returns=Backtest,
    refuses=[RULE_TOO_WIDE, RULE_TOO_FINE, NOTHING_USUAL, *QUERY_REFUSALS],
)
async def backtest(call: Call[AuditServices], trial: BacktestRequest) -> Backtest:
    """Where a rule would have fired. Nothing is recorded; checks of the service have no history."""
    return await try_rule(call.services, call.org, trial)


async def try_rule(services: AuditServices, org: Organisation, trial: BacktestRequest) -> Backtest:
    """Where the rule would have fired.

    Raises RULE_TOO_WIDE, RULE_TOO_FINE, NOTHING_USUAL, QueryTooSlow, StoreFault.
    """
    now, rule = services.clock(), trial.rule
    log = await open_log(services.store, services.lake, org, now)
    since = now - timedelta(days=trial.days)
    found = Fires(0, [])
    if rule.kind == "silence":
        hour = Bucket.HOUR.start(now)
        hours = [hour - n * Bucket.HOUR.length for n in range(trial.days * 24)][::-1]
        before = usual_before(rule, org.tier)
        counts = await count(services.store, log, rule, since - max(before) - rule.length, hour)
        if len(counts["value"].unique()) * len(hours) > WINDOWS_MAX:
            raise RULE_TOO_FINE
        found = await log.compute(lambda: silences(rule, counts, hours, before, [], LISTED_MAX))
    elif rule.kind not in CHECKS:
        until = now + Bucket.MINUTE.length  # of this minute, too
        counts = await count(services.store, log, rule, since - rule.length, until)
        found = await log.compute(lambda: bursts(rule, counts, since, [], LISTED_MAX))
    shown = [AlertEntry.of(alert_of(rule, each)) for each in found.last[::-1]]
    return Backtest(org=org.slug, days=trial.days, count=found.total, alerts=shown)


@resource.get(
    "list_alerts",
    needs=Capability.AUDIT_READ,
    query=AlertQuery,
    returns=AlertList,
    refuses=[INVALID_CURSOR],
)
async def alerts(call: Call[AuditServices], query: AlertQuery) -> AlertList:
    """List where rules fired, a page at a time, newest first."""
    cursors = ListCursors.of(call.services.settings, "alerts", call.org.id, query.state or "")
    mine = select(AlertFiring).where(AlertFiring.tenant_id == call.org.id)
    if query.state is not None:
        mine = mine.where(AlertFiring.state == query.state)
    order = (AlertFiring.fired_at, AlertFiring.id)
    async with call.read() as session:
        listed, next_cursor = await newest_page(
            session, mine, order, cursors, query.limit, query.cursor
        )
    shown = [AlertEntry.of(alert) for alert in listed]
    return AlertList(org=call.org.slug, alerts=shown, next_cursor=next_cursor)


@resource.post(
    "handle_alert",
    "/<alert_id>/handle",
    needs=Capability.ALERT_WRITE,
    body=HandledRequest,
    example={"state": "acknowledged", "note": "Looking at it"},
    returns=AlertEntry,
    refuses=[ALERT_NOT_FOUND, NOTE_INVALID],
)
async def handle(call: WriteCall[AuditServices], body: HandledRequest, alert_id: str) -> AlertEntry:
    """Acknowledge or close an alert, with a note."""
    alert = await call.session.get(AlertFiring, alert_id)
    if alert is None or alert.tenant_id != call.org.id:
        raise ALERT_NOT_FOUND
    alert.state, alert.note = body.state, parse_note(body.note)
    alert.handled_by, alert.handled_at = call.by.actor, call.work.now
    handled = AlertHandled(
        alert_id=alert_id, rule=alert.rule_name, state=body.state, note=alert.note
    )
    call.work.record(call.org.id, handled, call.by, subject=alert_id)
    return AlertEntry.of(alert)


async def list_rules(session: AsyncSession, tenant_id: str) -> list[AlertRuleEntry]:
    """The organisation's rules, by name."""
    mine = select(AlertRuleEntry).where(AlertRuleEntry.tenant_id == tenant_id)
    return list(await session.scalars(mine.order_by(AlertRuleEntry.name)))


async def set_rule(
    work: UnitOfWork,
    org: Organisation,
    rule: AlertRule,
    by: AuditContext,
    entry: AlertRuleEntry | None,
) -> AlertRuleEntry:
    """Create `rule`, or make `entry` be it. Raises TOO_MANY_RULES, RULE_EXISTS, NOTHING_USUAL."""
    if rule.kind == "silence":
        usual_before(rule, org.tier)
    change: Literal["created", "changed"] = "changed"
    if entry is None:
        mine = select(func.count()).where(AlertRuleEntry.tenant_id == org.id)
        if (await work.session.scalar(mine) or 0) >= RULES_MAX:
            raise TOO_MANY_RULES(limit=RULES_MAX)
        entry, change = AlertRuleEntry(id=new_id("rule"), tenant_id=org.id), "created"
        work.session.add(entry)
    entry.name, entry.definition = rule.name, msgspec.json.encode(rule).decode()
    entry.on_since = work.now if rule.is_on else None
    entry.changed_by, entry.changed_at = by.actor, work.now
    try:
        await work.session.flush()
    except IntegrityError as error:
        raise RULE_EXISTS from error
    changed = AlertRuleChanged(
        rule_id=entry.id, rule=rule.name, change=change, definition=entry.definition
    )
    work.record(org.id, changed, by, subject=entry.id)
    return entry


async def _rule(session: AsyncSession, org: Organisation, rule_id: str) -> AlertRuleEntry:
    entry = await session.get(AlertRuleEntry, rule_id)
    if entry is None or entry.tenant_id != org.id:
        raise RULE_NOT_FOUND
    return entry
