"""The first steps of a new organisation: what is left until its first attributed install."""

from dataclasses import dataclass
from typing import Final

from quart import url_for

from analytics.model.events import Event
from analytics.model.filters import parse_query
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.tenant_log import TenantLog
from service.orgs.members import list_owners
from service.pages.navigation import may
from service.pages.services import DashboardServices
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.organisations import list_live_keys
from service.store.tables import Organisation
from service.trust.bindings.repository import BindingCounts

_INSTALLS: Final = (
    Event.INSTALL_ALLOWED,
    Event.OSS_FIRST_PARTY,
    Event.BLOCKLIST_HIT,
    Event.COOLDOWN_ACTIVE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what to do and why, where, and whether it is done."""

    label: str
    why: str
    href: str
    is_done: bool


async def first_steps(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    log: TenantLog,
    bindings: BindingCounts,
) -> list[Step]:
    """The steps for a caller who may take them all; none once installs arrive, and for others."""
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
    return [
        Step(
            "Issue an API key",
            "Your package proxy sends install rows with it.",
            url_for("dashboard_people.keys_page", slug=org.slug),
            bool(keys),
        ),
        Step(
            "Trust a CI job",
            "Rows of requests with its token then name the job, its run and its repository.",
            url_for("dashboard_trust.new_page", slug=org.slug),
            bool(bindings.active),
        ),
        Step(
            "Send the first row",
            "The keys page has a command to try, with the key filled in.",
            url_for("system.docs"),
            is_done=False,
        ),
        Step(
            "Invite a second owner",
            "One owner who is away cannot lock the organisation out.",
            url_for("dashboard_people.members_page", slug=org.slug),
            len(owners) > 1,
        ),
    ]
