"""The reports page: views of the audit log by question, and who could do what as of a date."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from analytics.model.envelopes import OidcBindingCreated, OidcBindingRevoked
from analytics.model.log_envelopes import (
    AuditExported,
    AuditExportFinished,
    AuditImported,
    AuditPruned,
    AuditSegmentLost,
    AuditSegmentRestored,
    ClockAccepted,
)
from analytics.model.org_envelopes import (
    AdminTokenChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
    DeviceSignInSucceeded,
    InstallTokenIssued,
    LegalHoldChanged,
    LinkSignInSucceeded,
    MemberAdded,
    MemberRemoved,
    MemberRoleChanged,
    OauthLoginSucceeded,
    OrgTierChanged,
    PasskeyAuthenticationSucceeded,
    PasskeyRegistered,
    PasskeyRemoved,
    RoleOverrideChanged,
    SessionIssued,
    SessionRevoked,
    SignedOut,
    SignInDomainChanged,
    SignInFailed,
    TeamAdminChanged,
    TeamCreated,
)
from analytics.model.policy_envelopes import (
    ArtifactAccepted,
    BlocklistImported,
    PolicyChanged,
    PolicyExceptionDecided,
    PolicyExceptionRequested,
)
from service.access.callers import member_actor
from service.audit.services import AuditServices
from service.core.errors import Invalid
from service.pages.display_names import Person, find_names
from service.store.tables import Organisation
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_api import notes
from service.trust.reports.access_report import AccessReport, ReportedMember, report_access

SUCCEEDED: Final = (
    OauthLoginSucceeded.event,
    PasskeyAuthenticationSucceeded.event,
    LinkSignInSucceeded.event,
    DeviceSignInSucceeded.event,
)
SHOWN_MAX: Final = 500
"""How many members, keys and bindings the page of the access report shows."""

_Line = TypeVar("_Line")

SIGN_INS: Final = (*SUCCEEDED, SignInFailed.event)
RIGHTS: Final = (
    MemberAdded.event,
    MemberRoleChanged.event,
    MemberRemoved.event,
    RoleOverrideChanged.event,
    TeamCreated.event,
    TeamAdminChanged.event,
    SignInDomainChanged.event,
    ApiKeyCreated.event,
    ApiKeyRotated.event,
    ApiKeyRevoked.event,
    OidcBindingCreated.event,
    OidcBindingRevoked.event,
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
    View("Failed sign-ins", "with the reason", {"event": (SignInFailed.event,)}),
    View(
        "Sessions and passkeys",
        "sign-in links and sessions issued or ended, passkeys added or removed",
        {
            "event": (
                SessionIssued.event,
                SessionRevoked.event,
                SignedOut.event,
                PasskeyRegistered.event,
                PasskeyRemoved.event,
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
                MemberAdded.event,
                MemberRoleChanged.event,
                MemberRemoved.event,
                RoleOverrideChanged.event,
                TeamAdminChanged.event,
            )
        },
    ),
    View(
        "API keys, bindings, install tokens",
        "issued, rotated, created, revoked",
        {"event": (*RIGHTS[-5:], InstallTokenIssued.event, AdminTokenChanged.event)},
    ),
    View(
        "What may be installed",
        "changes of the install policy and the blocklist, exceptions, accepted files",
        {
            "event": (
                PolicyChanged.event,
                PolicyExceptionRequested.event,
                PolicyExceptionDecided.event,
                BlocklistImported.event,
                ArtifactAccepted.event,
            )
        },
    ),
    View(
        "Exports, imports, dropped rows",
        "what left, came in, was deleted after retention, was lost or restored",
        {
            "event": (
                AuditExported.event,
                AuditExportFinished.event,
                AuditImported.event,
                AuditPruned.event,
                AuditSegmentRestored.event,
                AuditSegmentLost.event,
                ClockAccepted.event,
                LegalHoldChanged.event,
                OrgTierChanged.event,
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
