"""The reports page: views of the audit log by question, and who could do what as of a date."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from analytics.model.events import Event
from service.access.callers import member_actor
from service.audit.services import AuditServices
from service.core.errors import Invalid
from service.pages.display_names import Person, find_names
from service.store.tables import Organisation
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_api import notes
from service.trust.reports.access_report import AccessReport, ReportedMember, report_access

SUCCEEDED: Final = (
    Event.OAUTH_LOGIN_SUCCEEDED,
    Event.PASSKEY_AUTHENTICATION_SUCCEEDED,
    Event.LINK_SIGN_IN_SUCCEEDED,
    Event.DEVICE_SIGN_IN_SUCCEEDED,
)
SHOWN_MAX: Final = 500
"""How many members, keys and bindings the page of the access report shows."""

_Line = TypeVar("_Line")

SIGN_INS: Final = (*SUCCEEDED, Event.SIGN_IN_FAILED)
RIGHTS: Final = (
    Event.MEMBER_ADDED,
    Event.MEMBER_ROLE_CHANGED,
    Event.MEMBER_REMOVED,
    Event.ROLE_OVERRIDE_CHANGED,
    Event.TEAM_CREATED,
    Event.TEAM_ADMIN_CHANGED,
    Event.SIGN_IN_DOMAIN_CHANGED,
    Event.API_KEY_CREATED,
    Event.API_KEY_ROTATED,
    Event.API_KEY_REVOKED,
    Event.OIDC_BINDING_CREATED,
    Event.OIDC_BINDING_REVOKED,
)


@dataclass(frozen=True, slots=True)
class View:
    """A question, and the filters of the audit page that answer it."""

    label: str
    words: str
    filters: Mapping[str, Any]


VIEWS: Final = (
    View("Sign-ins", "every attempt, by any method", {"event": SIGN_INS}),
    View("Successful sign-ins", "who came in, when, from where", {"event": SUCCEEDED}),
    View("Failed sign-ins", "with the reason", {"event": (Event.SIGN_IN_FAILED,)}),
    View(
        "Sessions and passkeys",
        "sign-in links and sessions issued or ended, passkeys added or removed",
        {
            "event": (
                Event.SESSION_ISSUED,
                Event.SESSION_REVOKED,
                Event.SIGNED_OUT,
                Event.PASSKEY_REGISTERED,
                Event.PASSKEY_REMOVED,
            )
        },
    ),
    View(
        "Changes of rights",
        "members, roles, role overrides, teams, API keys and bindings",
        {"event": RIGHTS},
    ),
    View(
        "Members and roles",
        "added, removed, and what they or their role may do",
        {
            "event": (
                Event.MEMBER_ADDED,
                Event.MEMBER_ROLE_CHANGED,
                Event.MEMBER_REMOVED,
                Event.ROLE_OVERRIDE_CHANGED,
                Event.TEAM_ADMIN_CHANGED,
            )
        },
    ),
    View(
        "API keys, bindings, install tokens",
        "issued, rotated, created, revoked",
        {"event": (*RIGHTS[-5:], Event.INSTALL_TOKEN_ISSUED, Event.ADMIN_TOKEN_CHANGED)},
    ),
    View(
        "What may be installed",
        "changes of the install policy and the blocklist, exceptions, accepted files",
        {
            "event": (
                Event.POLICY_CHANGED,
                Event.POLICY_EXCEPTION_REQUESTED,
                Event.POLICY_EXCEPTION_DECIDED,
                Event.BLOCKLIST_IMPORTED,
                Event.ARTIFACT_ACCEPTED,
            )
        },
    ),
    View(
        "Exports, imports, dropped rows",
        "what left, came in, was deleted after retention, was lost or restored",
        {
            "event": (
                Event.AUDIT_EXPORTED,
                Event.AUDIT_EXPORT_FINISHED,
                Event.AUDIT_IMPORTED,
                Event.AUDIT_PRUNED,
                Event.AUDIT_SEGMENT_RESTORED,
                Event.AUDIT_SEGMENT_LOST,
                Event.CLOCK_ACCEPTED,
                Event.LEGAL_HOLD_CHANGED,
                Event.ORG_TIER_CHANGED,
            )
        },
    ),
)


@dataclass(frozen=True, slots=True)
class AccessView:
    """The template's data: a `report`, or the `fault` of what was typed as its date."""

    given: str
    report: AccessReport | None
    notes: list[str]
    owners: Mapping[str, Person]
    projects: Mapping[str, str]
    fault: Invalid | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return 200 if self.fault is None else self.fault.status

    def shown(self, lines: Sequence[_Line]) -> Sequence[_Line]:
        """The first of the report's members, keys or bindings."""
        return lines[:SHOWN_MAX]

    def actor_of(self, member: ReportedMember) -> str:
        """The member's name in `actor` of audit rows."""
        return member_actor(member.identity_provider, member.id)


async def load_access_view(
    services: AuditServices, org: Organisation, given: str | None
) -> AccessView:
    """Who could do what as of what was typed, by default now. Raises StoreFault, QueryTooSlow."""
    given = (given or "").strip()
    try:
        as_of = parse_as_of(given or None)
        report = await report_access(services.store, services.lake, org, as_of, services.clock())
    except Invalid as fault:
        return AccessView(given, None, [], {}, {}, fault)
    keys, bindings = report.api_keys[:SHOWN_MAX], report.bindings[:SHOWN_MAX]
    actors = {key.created_by for key in keys if key.created_by is not None}
    limits = [key.project_id for key in keys]
    limits += [binding.project_id for binding in bindings]
    projects = {project_id for project_id in limits if project_id is not None}
    async with services.store.read() as session:
        names = await find_names(session, org.id, actors=actors, projects=projects)
    owners = {actor: names.person(actor) for actor in actors}
    return AccessView(given, report, notes(report), owners, names.projects)
