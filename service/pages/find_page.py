"""The page that jumps to any other: pages, actions, and what has the typed text in its name.

find.js opens it as a dialog over every page of the organisation.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlencode

from msgspec import Meta
from quart import Blueprint, url_for

from analytics.model.filters import Condition, Term, literal, parse_query
from analytics.model.instants import format_us, midnight, utc_day
from service.access.callers import member_actor
from service.access.roles import Capability
from service.audit.tenant_log import open_log
from service.ci.providers import job_label
from service.pages.navigation import SECTIONS, Destination, may
from service.pages.page import Page, PageCall, View
from service.pages.summary_panel import SummaryUnavailable, or_unavailable
from service.store.organisations import list_members_from
from service.trust.bindings.listing import BindingFilter, list_page
from service.web.models import Request

blueprint = Blueprint("dashboard_find", __name__, url_prefix="/admin/ui/orgs/<slug>")

ACTIONS: Final = (
    Destination("Add a binding", "dashboard_create_binding.new_page", Capability.OIDC_WRITE),
    Destination(
        "Revoke a repository", "dashboard_repository.repository_page", Capability.OIDC_WRITE
    ),
    Destination("Block a version", "dashboard_policy.policy_page", Capability.POLICY_WRITE),
    Destination("Export the audit log", "dashboard_exports.offer_page", Capability.AUDIT_EXPORT),
    Destination("Invite a member", "dashboard_members.members_page", Capability.ORG_ADMIN),
    Destination("Issue an API key", "dashboard_keys.keys_page", Capability.ORG_ADMIN),
)
_LISTS: Final = (
    ("q", Destination("Rows of the audit log", "dashboard.audit_page", Capability.AUDIT_READ)),
    (
        "name",
        Destination("The package", "dashboard_investigate.package_page", Capability.AUDIT_READ),
    ),
    ("find", Destination("Members", "dashboard_members.members_page", Capability.ORG_ADMIN)),
    ("find", Destination("API keys", "dashboard_keys.keys_page", Capability.ORG_ADMIN)),
)
"""Pages that show what was typed, with the parameter that takes it."""


HITS_MAX: Final = 5
"""How many packages, jobs, bindings and members are listed."""
JOBS_MAX: Final = 1_000
"""Among how many of the most frequent jobs one is looked for: their names are not indexed."""
_JOB_DAYS: Final = 30
_LOOK_UP_MAX_S: Final = 1.0

_Hits = list[tuple[str, str]]


class FindQuery(Request):
    """What was typed."""

    q: Annotated[str, Meta(max_length=256)] = ""


@Page(blueprint, "/find", "find.html", needs=None, query=FindQuery)
async def find_page(call: PageCall, query: FindQuery) -> View:
    """What has `q` in its name, of what the caller may open, in groups of names with addresses."""
    text = " ".join(query.q.split())
    places = [
        (page.label if page.label == section else f"{section}: {page.label}", page)
        for section, pages in SECTIONS.items()
        for page in pages
    ]
    groups = {
        "Pages": _named(call, text, places),
        "Actions": _named(call, text, [(action.label, action) for action in ACTIONS]),
    }
    if text:
        groups |= await _found(call, text)
        groups[f"With “{text}”"] = [
            (where.label, _address(call, where.endpoint, **{parameter: text}))
            for parameter, where in _LISTS
            if _may_open(call, where)
        ]
    return {"text": text, "groups": groups}


def _address(call: PageCall, endpoint: str, **parameters: str) -> str:
    path = url_for(endpoint, slug=call.org.slug)
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _may_open(call: PageCall, where: Destination) -> bool:
    return where.capability is None or may(call.caller, where.capability, call.org)


def _named(call: PageCall, text: str, places: list[tuple[str, Destination]]) -> _Hits:
    """Those of `places` that the caller may open and whose labels have each word of `text`."""
    words = text.casefold().split()
    return [
        (label, _address(call, where.endpoint))
        for label, where in places
        if _may_open(call, where) and all(word in label.casefold() for word in words)
    ]


async def _found(call: PageCall, text: str) -> dict[str, _Hits]:
    """Packages and jobs of the log, bindings and members, of what the caller may read."""
    groups: dict[str, _Hits] = {}
    if may(call.caller, Capability.AUDIT_READ, call.org):
        groups |= await _in_log(call, text)
    if may(call.caller, Capability.OIDC_READ, call.org):
        async with call.read() as session:
            page = await list_page(session, call.org.id, BindingFilter(text=text))
        groups["Bindings"] = [
            (
                f"{job_label(one.sub_pattern) or one.sub_pattern}"
                f"{', revoked' if one.revoked_at else ''}",
                url_for("dashboard_binding.binding_page", slug=call.org.slug, binding_id=one.id),
            )
            for one in page.bindings[:HITS_MAX]
        ]
    if may(call.caller, Capability.ORG_ADMIN, call.org):
        groups["People"] = await _people(call, text)
    return groups


async def _in_log(call: PageCall, text: str) -> dict[str, _Hits]:
    """Packages whose names begin with `text`, and CI jobs that have it; none if that is slow."""
    services = call.services
    log = await open_log(services.store, services.audit.lake, call.org, services.clock())
    spellings = tuple(Term(each, True, False) for each in dict.fromkeys((text, text.casefold())))
    beginning = replace(parse_query({}), conditions=(Condition("package_name", spellings),))
    since = format_us(midnight(utc_day(services.clock() - timedelta(days=_JOB_DAYS))))
    packages = await or_unavailable(log.values(beginning, "package_name", HITS_MAX, _LOOK_UP_MAX_S))
    subjects = await or_unavailable(
        log.values(parse_query({"since": [since]}), "subject", JOBS_MAX, _LOOK_UP_MAX_S)
    )
    names = [] if isinstance(packages, SummaryUnavailable) else [name for name, _ in packages]
    jobs = [] if isinstance(subjects, SummaryUnavailable) else [name for name, _ in subjects]
    labels = [(label, job) for job in jobs if (label := job_label(job)) is not None]
    return {
        "Packages": [
            (name, _address(call, "dashboard_investigate.package_page", name=name))
            for name in names
        ],
        "CI jobs": [
            (label, _address(call, "dashboard.audit_page", subject=literal(job)))
            for label, job in labels
            if text.casefold() in label.casefold() or text in job
        ][:HITS_MAX],
    }


async def _people(call: PageCall, text: str) -> _Hits:
    """Members by their addresses, each with what they did if the caller may read that."""
    async with call.read() as session:
        members = await list_members_from(session, call.org, text, "", HITS_MAX)
    people: _Hits = []
    for member in members:
        place = _address(call, "dashboard_members.members_page", find=member.email)
        people.append((member.email, place))
        if may(call.caller, Capability.AUDIT_READ, call.org):
            actor = literal(member_actor(member.identity_provider, member.id))
            did = _address(call, "dashboard.audit_page", actor=actor)
            people.append((f"What {member.email} did", did))
    return people
