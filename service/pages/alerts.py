"""The alerts page: where rules fired, the rules, and a new one, which is tried before."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from msgspec import structs
from quart import Blueprint
from sqlalchemy import select

from service.access.roles import Capability
from service.audit.alerts.alerts_api import (
    SHIPPED,
    AlertRuleForm,
    BacktestRequest,
    create,
    delete,
    handle,
    list_rules,
    try_rule,
)
from service.audit.alerts.rules import KINDS, parse_rule
from service.core.errors import Refusal
from service.pages.page import Page, PageCall, View
from service.store.tables import AlertFiring
from service.web.models import Request

SHOWN_MAX: Final = 100
DAYS: Final = 30
_OF_PAGES: Final = {"last", "since", "until", "order", "columns", "limit"}

blueprint = Blueprint("dashboard_alerts", __name__, url_prefix="/admin/ui/orgs/<slug>/alerts")


class TypedRule(Request):
    """The rule in the form, all of it as texts; without a name nothing is tried."""

    name: str = ""
    kind: str = "count"
    query: str = ""
    at_least: str = "1"
    window: str = "5m"
    per: str = ""
    where: str = ""
    outside: str = ""
    percent: str = "0"
    sigma: str = ""


def rule_given(form: Mapping[str, str]) -> dict[str, Any]:
    """The body of a request for the rule in these fields."""
    given: dict[str, Any] = {
        name: form[name].strip() for name in TypedRule.__struct_fields__ if form.get(name)
    }
    for name in ("at_least", "percent"):
        if given.get(name, "").isdecimal():
            given[name] = int(given[name])
    if "where" in given:
        given["where"] = [each.strip() for each in given["where"].split(",")]
    return given


@Page(
    blueprint,
    "",
    "alerts.html",
    needs=Capability.AUDIT_READ,
    query=TypedRule,
    done={
        "created": "The rule is on: it counts rows from now on.",
        "deleted": "The rule was deleted. Its alerts stay.",
        "acknowledged": "The alert is acknowledged.",
        "closed": "The alert is closed.",
    },
)
async def alerts_page(call: PageCall, typed: TypedRule) -> View:
    """The latest alerts, the rules, and where the rule in the form would have fired."""
    latest = select(AlertFiring).where(AlertFiring.tenant_id == call.org.id)
    newest_first = latest.order_by(AlertFiring.fired_at.desc(), AlertFiring.id.desc())
    async with call.read() as session:
        alerts = (await session.scalars(newest_first.limit(SHOWN_MAX))).all()
        rules = await list_rules(session, call.org.id)
    names = {rule.name for rule in rules}
    return {
        "alerts": alerts,
        "rules": [AlertRuleForm.of(rule) for rule in rules],
        "shipped": [rule for rule in SHIPPED if rule.name not in names],
        "typed": structs.asdict(typed) | {"query": _without_time(typed.query)},
        "kinds": [(kind, kind) for kind in KINDS],
        **await _tried(call, typed),
    }


def _without_time(query: str) -> str:
    """A search of the audit page without what a rule cannot have."""
    filters = parse_qs(query).items()
    kept = {name: values for name, values in filters if name not in _OF_PAGES}
    return urlencode(kept, doseq=True) if len(kept) < len(filters) else query


async def _tried(call: PageCall, typed: TypedRule) -> View:
    if not typed.name:
        return {"tried": None, "faults": {}}
    try:
        rule = parse_rule(rule_given(structs.asdict(typed)))
        trial = BacktestRequest(rule=rule, days=DAYS)
        return {"tried": await try_rule(call.services.audit, call.org, trial), "faults": {}}
    except Refusal as refusal:
        faults = {each.field or "query": each.text for each in (refusal, *refusal.further)}
        return {"tried": None, "faults": faults, "status": refusal.status}


alerts_page.form("", "create_rule", create, "created", field="name", fields=rule_given)
alerts_page.form("/rules/<alert_rule_id>/delete", "delete_rule", delete, "deleted")
alerts_page.form("/<alert_id>/handle", "handle_alert", handle, lambda alert: alert.state)
