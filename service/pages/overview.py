"""The home page, and the overview: what needs attention, trends, and who did what."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.export.formats import ExportFormat, format_label
from analytics.model import org_envelopes as people
from analytics.model.envelopes import (
    ADMIN_EVENTS,
)
from analytics.model.filters import literal, parse_query
from analytics.model.instants import format_us, midnight, utc_day
from analytics.model.rows import VerdictSource
from analytics.query.buckets import Bucket
from service.access.callers import MemberPrincipal
from service.access.roles import Capability
from service.audit.clock_guard import ClockGuard
from service.audit.tenant_log import TenantLog, open_log
from service.ci.providers import job_label, job_provider
from service.core.errors import NotFound, Unauthenticated
from service.orgs.members import list_owners
from service.pages.attention import load_attention
from service.pages.audit_page import blueprint
from service.pages.display_names import age, cut, grouped, initials
from service.pages.navigation import may
from service.pages.page import Page, PageCall, View
from service.pages.reports import SIGN_INS
from service.pages.rows import load_newest, pretty_json
from service.pages.services import DashboardServices
from service.pages.state import PageState, in_picker, retention_window
from service.pages.streaming import Later
from service.pages.summary_panel import (
    GLANCE_MAX_S,
    SummaryUnavailable,
    load_facet,
    or_unavailable,
)
from service.store.organisations import get_org_by_id
from service.trust.bindings.repository import count_by_state
from service.trust.rejected.rows import count_rejected
from service.trust.rejected.subjects import ENTRIES_PER_ORG_MAX, LISTED_FOR
from service.web.dependencies import group_of
from service.web.templates import render_template

home = Blueprint("home", __name__)


@home.app_template_filter()
def change(rows: int, before: int | None) -> str:
    """By how much `rows` are more than `before`; empty if that is not known."""
    if before is None or rows == before == 0:
        return ""
    return f"{100 * (rows - before) / before:+.0f} %" if before else f"+{rows:,}"


for text_filter in (
    *(age, cut, format_label, grouped, in_picker, initials),
    *(job_label, job_provider, literal, pretty_json),
):
    home.add_app_template_filter(text_filter)


@home.app_template_global()
def export_formats() -> list[ExportFormat]:
    """The formats in which rows can be exported."""
    return list(ExportFormat)


@home.get("/")
async def introduction() -> ResponseReturnValue:
    """Introduce the service, with a link to the organisation for members who are signed in."""
    services = group_of(DashboardServices)
    try:
        caller = await services.sign_in.authenticator.caller(request, VerdictSource.DASHBOARD)
    except Unauthenticated:
        return await render_template("home.html")
    if not isinstance(caller, MemberPrincipal):
        return await render_template("home.html")
    async with services.store.read() as session:
        org = await get_org_by_id(session, caller.tenant_id)
    return await render_template("home.html", org=org)


THEME: Final = "theme"
"""The cookie with the colour scheme of a browser, `light` or `dark`; without it the system's."""

_OWN_PAGE: Final = re.compile(r"/(?![/\\])\S*")


@home.app_context_processor
async def chosen_theme() -> dict[str, str | None]:
    """The colour scheme that this browser was set to, for all templates."""
    services = group_of(DashboardServices)
    chosen = services.sign_in.cookies.read(request, THEME)
    return {THEME: chosen if chosen in {"light", "dark"} else None}


@home.get("/admin/ui/theme/<any(system, light, dark):choice>")
async def choose_theme(choice: str) -> ResponseReturnValue:
    """Set the colour scheme of this browser, and go back to the page `back`."""
    services = group_of(DashboardServices)
    back = request.args.get("back", "/")
    response = redirect(back if _OWN_PAGE.fullmatch(back) else "/", 303)
    if request.headers.get("sec-fetch-site") == "cross-site":
        return response  # a link on another site changes nothing here
    if choice == "system":
        services.sign_in.cookies.delete(response, THEME)
    else:
        services.sign_in.cookies.keep(response, THEME, choice, timedelta(days=365))
    return response


@home.get("/admin/ui/components")
async def components_page() -> ResponseReturnValue:
    """Show every component of the pages, where the operator wants that: the demo does."""
    services = group_of(DashboardServices)
    if not services.settings.components_page:
        raise NotFound
    return await render_template("components.html")


DAYS: Final = 30
CHANGES_MAX: Final = 7
MOVERS_MAX: Final = 7
TOP: Final = 4
PACKAGES_MAX: Final = 1_000
"""With more different packages in a window, it is not known which are new in it."""
OWNERS_MAX: Final = 10
"""How many owners are named to members who lack a capability."""

ROUTINE: Final = (
    *SIGN_INS,
    people.SignedOut.event,
    people.SessionIssued.event,
    people.SessionRevoked.event,
    people.InstallTokenIssued.event,
    people.MachineTokenIssued.event,
)
"""Events that are counted in one line: they are many, and change nothing."""
CHANGES: Final = tuple(event for event in ADMIN_EVENTS if event not in ROUTINE)


def _drawn(days: Sequence[int], most: int) -> str:
    """The line of the rows by day, in a box of 29 by 36."""
    points = (f"{day} {35 - 33 * rows / (most or 1):.1f}" for day, rows in enumerate(days))
    return f"M{' '.join(points)}"


@dataclass(frozen=True, slots=True)
class _LogParts:
    """The last 30 whole days of the audit log, and the latest changes, from one snapshot.

    A part is SummaryUnavailable if it cannot be loaded.
    """

    services: DashboardServices
    log: TenantLog
    now: datetime
    path: str

    @property
    def view(self) -> View:
        """The parts, of which nothing is loaded yet."""
        return {"since": self.day(DAYS), "parts": Later(self._parts)}

    async def _parts(self) -> dict[str, object]:
        """What needs rows, each part by its name."""
        services, log, window = self.services, self.log, self._window(DAYS)
        routine, changes = self._of_events(ROUTINE), self._of_events(CHANGES).of_all_time()
        # One after the other: what an organisation runs besides its first query has low priority.
        return {
            "trends": await self._trends(),
            "movers": await self._movers(),
            "jobs": await load_facet(services.store, log, "subject", window, TOP),
            "actors": await load_facet(services.store, log, "actor", window, TOP),
            "changes": await load_newest(services, log, changes, CHANGES_MAX, self.now),
            "all_changes": changes,
            "routine": await or_unavailable(log.count(parse_query(routine.filters), GLANCE_MAX_S)),
            "routine_rows": routine,
        }

    def _of_events(self, events: Sequence[str]) -> PageState:
        return PageState({"since": (self.day(DAYS),), "event": tuple(events)}, self.path)

    def day(self, ago: int) -> str:
        return format_us(midnight(utc_day(self.now - timedelta(days=ago)))).replace(".000000", "")

    def _window(self, ago: int) -> PageState:
        """Installs that were let through, of 30 whole days from so many days ago on."""
        bounds = {"since": (self.day(ago),), "until": (self.day(ago - DAYS),)}
        return PageState({**bounds, "decision": ("ALLOWED",)}, self.path)

    async def _trends(self) -> list[dict[str, Any]] | SummaryUnavailable:
        """Rows of whole days, of the days before them, and of today, with drawings on one scale."""
        query = parse_query({"since": [self.day(2 * DAYS)]})
        summary = await or_unavailable(
            self.log.summary(query, Bucket.DAY, GLANCE_MAX_S, ["decision"])
        )
        if isinstance(summary, SummaryUnavailable):
            return summary
        by_day = {format_us(each.start)[:10]: each for each in summary.buckets}
        days = [by_day.get(self.day(ago)[:10]) for ago in range(2 * DAYS, -1, -1)]
        is_kept = self.log.floor is None or self.day(2 * DAYS) >= format_us(self.log.floor)
        trends = []
        for title, decision in (("Let through", "allowed"), ("Blocked", "blocked")):
            rows = [0 if each is None else getattr(each, decision) for each in days]
            before, now, most = rows[:DAYS], rows[DAYS:-1], max(rows[:-1])
            trends.append(
                {
                    "title": title,
                    "href": self._window(DAYS).only("decision", decision.upper()).href,
                    "rows": sum(now),
                    "before": sum(before) if is_kept else None,
                    "today": rows[-1],
                    "now": _drawn(now, most),
                    "was": _drawn(before, most) if is_kept else "",
                }
            )
        return trends

    async def _movers(self) -> dict[str, Any] | SummaryUnavailable:
        """The packages with most change, and those without an install in the 30 days before."""
        counts: list[dict[str, int]] = []
        for ago in (DAYS, 2 * DAYS):
            query = parse_query(self._window(ago).filters)
            rows = await or_unavailable(
                self.log.values(query, "package_name", PACKAGES_MAX, GLANCE_MAX_S)
            )
            if isinstance(rows, SummaryUnavailable):
                return rows
            counts.append(dict(rows))
        now, before = counts
        is_all = max(len(now), len(before)) < PACKAGES_MAX
        # Of what is not among the most frequent ones, it is not known how frequent it is.
        known = now.keys() | before.keys() if is_all else now.keys() & before.keys()
        rows_of = {name: (now.get(name, 0), before.get(name, 0)) for name in known}
        most = sorted(known, key=lambda name: (-abs(rows_of[name][0] - rows_of[name][1]), name))
        return {
            "packages": [(name, *rows_of[name]) for name in most[:MOVERS_MAX]],
            "new": [name for name in now if name not in before] if is_all else None,
        }


@Page(blueprint, "", "overview.html", needs=None, is_streamed=True)
async def overview_page(call: PageCall) -> View:
    """The parts of the overview that the member may see, as of now. Raises StoreUnavailable."""
    services, caller, org, now = call.services, call.caller, call.org, call.services.clock()
    trust, bindings, log, rows, owners = None, None, None, None, []
    if may(caller, Capability.OIDC_READ, org):
        async with call.read() as session:
            bindings = await count_by_state(session, org.id)
            trust = await count_rejected(
                session, org.id, now - LISTED_FOR, now - 2 * LISTED_FOR, ENTRIES_PER_ORG_MAX
            )
    if may(caller, Capability.AUDIT_READ, org):
        rows = await open_log(services.store, services.audit.lake, org, now)
        log = _LogParts(services, rows, now, url_for("dashboard.audit_page", slug=org.slug)).view
    if trust is None or log is None:
        async with call.read() as session:
            owners = [owner.email for owner in await list_owners(session, org, OWNERS_MAX)]
    refusal = await group_of(ClockGuard).refusal()
    return {
        "retention": retention_window(org, now),
        "role": caller.role if isinstance(caller, MemberPrincipal) else None,
        "attention": Later(lambda: load_attention(call, rows, bindings, DAYS)),
        "trust": trust,  # as `log`, None for those who may not see it
        "log": log,
        "owners": owners,  # some, who could grant access
        "prune_refused": None if refusal is None else refusal.why,
    }
