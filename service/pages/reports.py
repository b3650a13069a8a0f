"""The reports page: views of the audit log by question, and who could do what as of a date."""

from dataclasses import dataclass
from typing import Any, Final

from quart import Blueprint

from analytics.model import alert_envelopes as alerts
from analytics.model import envelopes
from analytics.model import log_envelopes as log
from analytics.model import org_envelopes as people
from analytics.model import policy_envelopes as policy
from analytics.model.events import Event
from analytics.model.labels import event_label
from service.access.callers import member_actor
from service.access.roles import Capability, Role
from service.audit.evidence.report import report_evidence, review
from service.core.errors import Invalid
from service.pages.display_names import find_names
from service.pages.page import Form, Page, PageCall, View
from service.pages.state import from_picker
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_api import notes
from service.trust.reports.access_report import report_access
from service.web.models import Request

blueprint = Blueprint("dashboard_reports", __name__, url_prefix="/admin/ui/orgs/<slug>/reports")

SUCCEEDED: Final = (
    people.OauthLoginSucceeded.event,
    people.PasskeyAuthenticationSucceeded.event,
    people.LinkSignInSucceeded.event,
    people.DeviceSignInSucceeded.event,
)
ROWS_MAX: Final = 500
"""How many members, keys and bindings the page of the access report shows."""

SIGN_INS: Final = (*SUCCEEDED, people.SignInFailed.event)
RIGHTS: Final = (
    people.MemberAdded.event,
    people.MemberRoleChanged.event,
    people.MemberRemoved.event,
    people.RoleOverrideChanged.event,
    people.TeamCreated.event,
    people.TeamAdminChanged.event,
    people.SignInDomainChanged.event,
    people.ApiKeyCreated.event,
    people.ApiKeyRotated.event,
    people.ApiKeyRevoked.event,
    envelopes.OidcBindingCreated.event,
    envelopes.OidcBindingRevoked.event,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the events of the rows that answer it."""

    label: str
    words: str
    events: tuple[Event, ...]


VIEWS: Final = (
    Question("Sign-ins", "every attempt, by any method", SIGN_INS),
    Question("Successful sign-ins", "who came in, when, from where", SUCCEEDED),
    Question("Failed sign-ins", "with the reason", (people.SignInFailed.event,)),
    Question(
        "Sessions and passkeys",
        "sign-in links and sessions issued or ended, passkeys added or removed",
        (
            people.SessionIssued.event,
            people.SessionRevoked.event,
            people.SignedOut.event,
            people.PasskeyRegistered.event,
            people.PasskeyRemoved.event,
        ),
    ),
    Question(
        "Changes of rights",
        "members, roles, role overrides, teams, API keys and bindings",
        RIGHTS,
    ),
    Question(
        "Members and roles",
        "added, removed, and what they or their role may do",
        (
            people.MemberAdded.event,
            people.MemberRoleChanged.event,
            people.MemberRemoved.event,
            people.RoleOverrideChanged.event,
            people.TeamAdminChanged.event,
        ),
    ),
    Question(
        "API keys, bindings, tokens",
        "issued, rotated, created, revoked",
        (
            *RIGHTS[-5:],
            people.InstallTokenIssued.event,
            people.MachineTokenIssued.event,
            people.MachineTokenRevoked.event,
            people.AdminTokenChanged.event,
        ),
    ),
    Question(
        "What may be installed",
        "changes of the install policy and the blocklist, exceptions, accepted files",
        (
            policy.PolicyChanged.event,
            policy.PolicyExceptionRequested.event,
            policy.PolicyExceptionDecided.event,
            policy.BlocklistImported.event,
            policy.InstallsMatched.event,
            policy.ArtifactAccepted.event,
        ),
    ),
    Question(
        "Reads, reviews, checkpoints",
        "who read the log, reviewed it, or changed what signs it; differences from what was signed",
        (
            log.AuditRead.event,
            log.AuditReviewed.event,
            log.EvidenceDiffers.event,
            log.EvidenceResumed.event,
            log.EvidenceKeyRotated.event,
            log.WitnessAdded.event,
            log.WitnessRemoved.event,
        ),
    ),
    Question(
        "Alerts and streams",
        "rules, what they fired for, what became of it; streams and what they could not send",
        (
            alerts.AlertRuleChanged.event,
            alerts.AlertFired.event,
            alerts.AlertHandled.event,
            log.StreamChanged.event,
            log.StreamGap.event,
        ),
    ),
    Question(
        "Exports, imports, dropped rows",
        "what left, came in, was asked in SQL, was deleted after retention, was lost or restored",
        (
            log.AuditExported.event,
            log.StreamChanged.event,
            log.StreamGap.event,
            log.AuditExportFinished.event,
            log.AuditSqlRun.event,
            log.AuditImported.event,
            log.AuditPruned.event,
            log.AuditSegmentRestored.event,
            log.AuditSegmentLost.event,
            log.ClockAccepted.event,
            people.LegalHoldChanged.event,
            people.OrgTierChanged.event,
        ),
    ),
)


@Page(blueprint, "", "evidence/reports.html", needs=Capability.AUDIT_READ)
async def reports_page(call: PageCall) -> View:
    """The reports and the views of the audit log."""
    return {"views": VIEWS}


class ReportDateQuery(Request):
    """The date of a report."""

    asOf: str = ""  # noqa: N815 - as in the API


@Page(
    blueprint, "/access", "evidence/access.html", needs=Capability.AUDIT_READ, query=ReportDateQuery
)
async def access_page(call: PageCall, query: ReportDateQuery) -> View:
    """Who could do what as of what was typed, by default now. Raises StoreFault, QueryTooSlow."""
    services, org, typed = call.services, call.org, from_picker(query.asOf.strip())
    try:
        as_of = parse_as_of(typed or None)
        report = await report_access(
            services.store, services.audit.lake, org, as_of, services.clock()
        )
    except Invalid as fault:
        page: View = {"typed": typed, "report": None, "fault": fault}
        return {"page": page, "roles": list(Role), "status": fault.status}
    keys, bindings = report.api_keys[:ROWS_MAX], report.bindings[:ROWS_MAX]
    actors = {key.created_by for key in keys if key.created_by is not None}
    limits = [key.project_id for key in keys]
    limits += [binding.project_id for binding in bindings]
    projects = {project_id for project_id in limits if project_id is not None}
    async with call.read() as session:
        names = await find_names(session, org.id, actors=actors, projects=projects)
    owners = {actor: names.person(actor) for actor in actors}
    page = {
        "typed": typed,
        "report": report,
        "notes": notes(report),
        "owners": owners,
        "projects": names.projects,
        "rows_max": ROWS_MAX,
        "actor_of": lambda member: member_actor(member.identity_provider, member.id),
    }
    return {"page": page, "roles": list(Role)}


@Page(
    blueprint,
    "/evidence",
    "evidence/auditor.html",
    needs=Capability.AUDIT_READ,
    done={"reviewed": "The review was recorded."},
)
async def evidence_page(call: PageCall) -> View:
    """What there is for an auditor, clause by clause. Raises StoreFault, and QUERY_REFUSALS."""
    report = await report_evidence(call.services.audit, call.org)
    actors = {each.actor for each in report.readers} | {each.actor for each in report.reviews}
    async with call.read() as session:
        names = await find_names(session, call.org.id, actors=actors)
    return {"report": report, "names": names, "event_label": event_label}


def _review_of(form: Form) -> dict[str, Any]:
    bounds = {name: from_picker(form.get(name, "").strip()) for name in ("since", "until")}
    return bounds | {"note": form.get("note", "")}


evidence_page.form("/evidence", "review", review, "reviewed", fields=_review_of)
