"""What of an organisation needs attention, each with the action that settles it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from quart import url_for

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, CooldownActive, InstallAllowed, OssFirstParty
from analytics.model.filters import literal, parse_query
from analytics.model.instants import format_us, midnight, utc_day
from analytics.model.policy_envelopes import InstallsMatched
from service.access.roles import Capability
from service.audit.tenant_log import TenantLog
from service.ci.providers import job_label
from service.orgs.api_keys import list_expiring_keys
from service.orgs.members import list_owners
from service.packages.policy.exceptions import OPEN, OPEN_MAX, list_exceptions
from service.pages.display_names import ago, find_names
from service.pages.navigation import may
from service.pages.page import PageCall
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.pages.trust.failures import failure_of
from service.store.organisations import list_live_keys
from service.trust.rejected.rejected_api import RejectedQuery, list_resolved

EACH_MAX: Final = 3
"""How many things of one kind have a line each; all of them are on the page it leads to."""

DECIDED_LATELY: Final = timedelta(days=7)
_RELEASES_MAX: Final = 50
_GROUPS_MAX: Final = 1_000
_RELEASE: Final = ("ecosystem", "package_name", "version")
_INSTALLS: Final = (
    InstallAllowed.event,
    OssFirstParty.event,
    BlocklistHit.event,
    CooldownActive.event,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing: what and why, since when, and the `action` at `href`. It is harm, or waits."""

    icon: str
    title: str
    why: str
    at: datetime | None
    action: str
    href: str
    is_harm: bool = False


async def load_attention(
    call: PageCall,
    log: TenantLog | None,
    bindings: Mapping[str, int] | None,
    days: int,
) -> list[Item]:
    """What needs the caller's attention as of now, most severe first. Raises StoreUnavailable.

    `log` is None for those who may not read it, and `bindings`, how many there are by state, for
    those who may not see them. Installs are those of so many whole days.
    """
    since = format_us(midnight(utc_day(call.services.clock() - timedelta(days=days))))
    affected = await or_unavailable(_affected(call.org.slug, log, since)) if log else []
    items: list[Item] = []
    if isinstance(affected, SummaryUnavailable):
        why = "It takes too long." if affected == "slow" else "Stored data is missing or damaged."
        page = url_for("dashboard.audit_page", slug=call.org.slug, event=BlocklistHit.event)
        title = "What got through before it was blocked is not known"
        items.append(Item("alert", title, why, None, "Open the blocked rows", page))
    else:
        items += affected
    items += await _matches(call.org.slug, log, since) if log else []
    if may(call.caller, Capability.OIDC_READ, call.org):
        items += await _rejected(call)
    items += await _exceptions(call)
    if may(call.caller, Capability.ORG_ADMIN, call.org):
        items += await _keys(call)
    if bindings and (unused := bindings["unused"]):
        title = f"{unused:,} binding{'s were' if unused > 1 else ' was'} never used"
        href = url_for("dashboard_bindings.bindings_page", slug=call.org.slug, state="unused")
        items.append(Item("link", title, "Trust that no job has needed yet.", None, "Review", href))
    if log and bindings:
        items += await _first_steps(call, log, bool(bindings["active"]))
    return items


async def _first_steps(call: PageCall, log: TenantLog, has_bindings: bool) -> list[Item]:
    """What is left to do before installs arrive, for callers who may do all of it."""
    caller, org, services = call.caller, call.org, call.services
    if not may(caller, Capability.ORG_ADMIN, org) or not may(caller, Capability.OIDC_WRITE, org):
        return []
    installs = await or_unavailable(
        log.page(parse_query({"event": list(_INSTALLS)}), 1, time_max_s=GLANCE_MAX_S)
    )
    if isinstance(installs, SummaryUnavailable) or installs.num_rows:
        return []
    async with services.store.read() as session:
        keys = await list_live_keys(session, org, "", "", 1, services.clock())
        owners = await list_owners(session, org, 2)
    steps = (
        (keys, "key", "Issue an API key", "Your proxy sends install rows with it.", "keys.keys"),
        (has_bindings, "link", "Trust a CI job", "Its rows name it then.", "create_binding.new"),
        (False, "check", "Send the first row", "A new key is shown with a command.", "keys.keys"),
        (owners[1:], "user", "Invite a second owner", "One may be away.", "members.members"),
    )
    return [
        Item(icon, title, why, None, "Start", url_for(f"dashboard_{page}_page", slug=org.slug))
        for is_done, icon, title, why, page in steps
        if not is_done
    ]


async def _affected(slug: str, log: TenantLog, since: str) -> list[Item]:
    """Releases that were installed before a rule blocked them, as the rows of both tell."""
    hits = parse_query({"since": [since], "event": [BlocklistHit.event]})
    ruled = {
        each.values: each
        for each in await log.groups(hits, _RELEASE, _RELEASES_MAX, GLANCE_MAX_S)
        if all(each.values[1:])
    }
    if not ruled:
        return []
    names, versions = ({literal(str(each[n])) for each in ruled} for n in (1, 2))
    query = {"package": [*names], "version": [*versions], "decision": ["ALLOWED"]}
    through = await log.groups(
        parse_query({"since": [since], **query}), _RELEASE, _GROUPS_MAX, GLANCE_MAX_S
    )
    items = []
    for each in through:
        rule, (ecosystem, name, version) = ruled.get(each.values), each.values
        if rule is None or each.first >= rule.first:
            continue
        href = url_for(
            "dashboard_investigate.package_page",
            slug=slug,
            name=name,
            ecosystem=ecosystem if ecosystem in set(Ecosystem) else None,  # of imported rows: any
            version=version,
        )
        times = f"{each.rows:,} install{'s' if each.rows > 1 else ''}"
        why = f"{times} before a rule blocked it, {rule.rows:,} times since."
        title = f"{name} {version} was installed"
        items.append(Item("alert", title, why, each.last, "Who got it", href, is_harm=True))
    return sorted(items, key=lambda item: str(item.at), reverse=True)


async def _matches(slug: str, log: TenantLog, since: str) -> list[Item]:
    """New advisories and rules that were found to affect past installs."""
    query = parse_query({"since": [since], "event": [InstallsMatched.event]})
    rows = await or_unavailable(log.page(query, EACH_MAX, time_max_s=GLANCE_MAX_S))
    if isinstance(rows, SummaryUnavailable):
        return []
    items = []
    for row in rows.select(["created_at", "payload"]).to_pylist():
        said = json.loads(row["payload"])
        page = "dashboard_affected.affected_by_page"
        href = url_for(page, slug=slug, rule_id=said["rule_id"])
        title = f"{said['rule_id']} affects past installs"
        why = f"{said['installs']:,} installs of {', '.join(said['packages'])}."
        items.append(Item("alert", title, why, row["created_at"], "Open", href, is_harm=True))
    return items


async def _rejected(call: PageCall) -> list[Item]:
    """Jobs whose tokens their issuer confirms, and that no binding trusts yet."""
    slug, verified = call.org.slug, RejectedQuery(verified=True)
    subjects, _ = await list_resolved(call.services.bindings, call.org.id, verified)
    waiting = [each for each in subjects if each.resolution.trusted_by is None]
    all_of_them = url_for("dashboard_rejected.rejected_page", slug=slug)
    items = []
    for row, resolution in ((each.row, each.resolution) for each in waiting[:EACH_MAX]):
        action, href = "Open", all_of_them
        if resolution.proposal and may(call.caller, Capability.OIDC_WRITE, call.org):
            action = "Trust it…"
            new: dict[str, Any] = {"slug": slug, "from": row.digest}
            href = url_for("dashboard_create_binding.new_page", **new)
        title = f"{job_label(row.sub or '') or row.sub or 'A CI job'} is rejected"
        why = failure_of(row.code, row.detail).meaning
        why = f"{row.count:,} token{'s' if row.count > 1 else ''}. {why}"
        items.append(Item("x", title, why, row.last_at, action, href))
    if more := waiting[EACH_MAX:]:
        title = f"{len(more)} more CI job{'s are' if len(more) > 1 else ' is'} rejected"
        items.append(Item("x", title, "", more[0].row.last_at, "Show them", all_of_them))
    return items


async def _exceptions(call: PageCall) -> list[Item]:
    """Requests that wait for a decision; to others than readers of the policy, their own."""
    org, now = call.org, call.services.clock()
    is_reader = may(call.caller, Capability.POLICY_READ, org)
    state, by = (OPEN, None) if is_reader else (None, call.by.actor)
    async with call.read() as session:
        listed = await list_exceptions(session, org.id, state, OPEN_MAX, requested_by=by)
        names = await find_names(session, org.id, actors={each.requested_by for each in listed})
    listed = [each for each in listed if now - (each.decided_at or now) < DECIDED_LATELY]
    endpoint = f"dashboard_exceptions.{'exceptions_page' if is_reader else 'new_exception'}"
    action = "Decide" if may(call.caller, Capability.POLICY_WRITE, org) else "Open"
    return [
        Item(
            "clock",
            f"An exception for {each.package} {each.version} "
            + ("was requested" if each.state == OPEN else f"is {each.state}"),
            f"{names.person(each.requested_by).name}: “{each.reason}”",
            each.decided_at or each.requested_at,
            action,
            url_for(endpoint, slug=org.slug, _anchor=each.id),
        )
        for each in listed[:EACH_MAX]
    ]


async def _keys(call: PageCall) -> list[Item]:
    """API keys that end soon, and were not rotated."""
    slug, now = call.org.slug, call.services.clock()
    async with call.read() as session:
        keys = await list_expiring_keys(session, call.org.id, now, EACH_MAX)
    items = []
    for key, ends_at in ((key, key.expires_at) for key in keys if key.expires_at):
        title, why = f"The API key {key.name} expires", f"In {ago(ends_at - now)}; not rotated yet."
        href = url_for("dashboard_keys.keys_page", slug=slug, find=key.id)
        items.append(Item("key", title, why, None, "Rotate", href))
    return items
