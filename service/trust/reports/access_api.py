"""The access report as JSON and as CSV, and its endpoint."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta
from quart import Response

from analytics.export.csv_json import guarded
from analytics.model.instants import format_ms
from service.access.roles import UNSCOPED_WORDS, Capability, Role
from service.audit.refusals import QUERY_REFUSALS
from service.audit.services import AuditServices
from service.core.threads import in_thread
from service.core.version import service_version
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_report import (
    AccessReport,
    MemberRights,
    report_access,
)
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, InstantOrDate, Omittable, Request, TimestampMs, TimestampUs
from service.web.responses import JSON_TYPE, encoded_list

CSV_COLUMNS: Final = ("kind", "id", "name", "role", "capabilities", "limited_to", "since", "detail")
_LISTS: Final = ("members", "teams", "api_keys", "bindings")
_SCOPE: Final = (
    "Members' sessions and passkeys are not in the report. Besides those listed, the operator"
    " (at the command line, and with the admin token) can do everything at any time."
)


resource = Resource("reports", "/access-report", Tag.REPORTS, AuditServices)
_Written = TypeVar("_Written", bytes, str)


class AccessQuery(Request):
    """As of when, and the format."""

    asOf: (  # noqa: N815 - as in the list of bindings
        Annotated[
            InstantOrDate,
            Meta(description="A past instant; a date is its first instant, UTC. Default: now."),
        ]
        | None
    ) = None
    format: Annotated[Literal["json", "csv"], Meta(description="Default `json`.")] = "json"


class RoleThen(Answer, kw_only=True):
    """What a role granted. `granted` are the capabilities beyond its defaults."""

    role: Role
    capabilities: list[str]
    granted: list[str]


class MemberThen(Answer, kw_only=True, gc=False):
    """A member then. `removed_at` is null, or when the membership ended since."""

    id: str
    email: str
    identity_provider: str
    role: Role
    capabilities: list[str]
    administers: Annotated[list[str], Meta(description="The ids of the teams they administered.")]
    since: TimestampMs
    removed_at: TimestampMs | None


class TeamThen(Answer, kw_only=True, gc=False):
    """A team then. `admins` are member ids."""

    id: str
    name: str
    admins: list[str]
    since: TimestampMs


class KeyThen(Answer, kw_only=True, gc=False):
    """An API key that was accepted then. `created_by` is null for keys older than its record."""

    id: str
    name: str
    scopes: Annotated[
        list[str],
        Meta(description="What the key may read. Without any it sends rows and reads nothing."),
    ]
    project_id: str | None
    created_by: str | None
    since: TimestampMs
    expires_at: TimestampMs | None
    revoked_at: TimestampMs | None


class BindingThen(Answer, kw_only=True, gc=False):
    """A trust binding that was active then."""

    id: str
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: str
    project_id: str | None
    team_id: str | None
    added_by: str
    since: TimestampMs
    revoked_at: TimestampMs | None
    conditions: Omittable[dict[str, str]] = UNSET


class AccessReportAnswer(Answer):
    """Who could do what at `as_of`.

    Roles, grants and team admins are those of `rights_as_of`. It is later than `as_of` if
    `is_complete` is false: changes between the two are past retention and no longer known.
    """

    org: str
    tenant_id: str
    as_of: TimestampUs
    made_at: TimestampUs
    retention_floor: TimestampUs | None
    is_complete: bool
    rights_as_of: TimestampUs
    notes: list[str]
    roles: list[RoleThen]
    members: list[MemberThen]
    teams: list[TeamThen]
    api_keys: list[KeyThen]
    bindings: list[BindingThen]
    version: str


@resource.get(
    "get_access_report",
    needs=Capability.AUDIT_READ,
    query=AccessQuery,
    returns=AccessReportAnswer,
    media={"text/csv": str},
    refuses=QUERY_REFUSALS,
)
async def access_report(call: Call[AuditServices], query: AccessQuery) -> Response:
    """Who could do what, as of a date: members, roles, team admins, API keys and bindings."""
    services, as_of = call.services, parse_as_of(query.asOf)
    report = await report_access(services.store, services.lake, call.org, as_of, services.clock())
    # In threads: an organisation may have tens of thousands of members, keys and bindings.
    if query.format == "json":
        body = await in_thread(_emptied, report_json, report)
        return Response(body, content_type=JSON_TYPE)
    name = f"{call.org.slug}-access-{report.as_of:%Y%m%dT%H%M%SZ}.csv"
    return Response(
        await in_thread(_emptied, report_csv, report),
        content_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _emptied(write: Callable[[AccessReport], _Written], report: AccessReport) -> _Written:
    """What `write` returns; the report has no entries then.

    The event loop would free tens of thousands of them at once.
    """
    written = write(report)
    for entries in (report.members, report.teams, report.api_keys, report.bindings):
        entries.clear()
    return written


def notes(report: AccessReport) -> list[str]:
    """What the report cannot tell, and what it leaves out, in words."""
    if report.is_complete:
        return [_SCOPE]
    since = format_ms(report.rights_as_of)
    unknown = (
        f"Changes of roles, role overrides and team admins before {since} are past retention or"
        f" dropped: these are shown as of {since}, not as of {format_ms(report.as_of)}. Members,"
        " teams, API keys and bindings are exact."
    )
    return [unknown, _SCOPE]


def report_answer(report: AccessReport) -> AccessReportAnswer:
    """The report as the API answers it."""
    admins = report.admins()
    may = {role: [each.value for each in report.capabilities(role)] for role in Role}
    return AccessReportAnswer.from_row(
        report,
        org=report.org.slug,
        tenant_id=report.org.id,
        notes=notes(report),
        roles=[
            RoleThen(role=role, capabilities=may[role], granted=sorted(report.grants.get(role, ())))
            for role in Role
        ],
        members=[_member(member, may[member.role]) for member in report.members],
        teams=[
            TeamThen.from_row(
                team,
                admins=[member.id for member in admins[team.id]],
                since=format_ms(team.created_at),
            )
            for team in report.teams
        ],
        api_keys=[
            KeyThen.from_row(key, since=format_ms(key.created_at)) for key in report.api_keys
        ],
        bindings=[
            BindingThen.from_row(
                binding,
                since=format_ms(binding.added_at),
                conditions=binding.conditions or UNSET,
            )
            for binding in report.bindings
        ],
        version=service_version(),
    )


def report_json(report: AccessReport) -> bytes:
    """The report as JSON, encoded in parts."""
    answer = report_answer(report)
    parts: dict[str, msgspec.Raw] = {}
    for name in _LISTS:
        entries = getattr(answer, name)
        parts[name] = encoded_list(entries)
        entries.clear()  # one list at a time: no other thread runs meanwhile
    return msgspec.json.encode(msgspec.structs.asdict(answer) | parts)


def report_csv(report: AccessReport) -> str:
    """The report as CSV, a line for each member, role, team, key and binding.

    Values that a spreadsheet could take for a formula are guarded as in exports.
    """
    file = io.StringIO()
    # All are quoted: some spreadsheets begin a cell at a `;`, too.
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for line in _csv_lines(report_answer(report)):
        writer.writerow([guarded(cell) for cell in line])
    return file.getvalue()


def _csv_lines(answer: AccessReportAnswer) -> Iterator[tuple[str, ...]]:
    """The lines of `answer`, which has no entries then: each of its lists is freed by itself."""
    whole = f"as of {answer.as_of}, rights as of {answer.rights_as_of}; {' '.join(answer.notes)}"
    yield "report", answer.tenant_id, answer.org, "", "", "", answer.made_at, whole
    names = {team.id: team.name for team in answer.teams}
    for member in answer.members:
        teams = ", ".join(names[team_id] for team_id in member.administers)
        yield (
            *("member", member.id, member.email, member.role, " ".join(member.capabilities)),
            *(f"admin of {teams}" if teams else "", member.since, member.identity_provider),
        )
    answer.members.clear()
    for role in answer.roles:
        beyond = f"beyond the defaults: {' '.join(role.granted)}" if role.granted else ""
        yield "role", role.role, role.role, role.role, " ".join(role.capabilities), "", "", beyond
    for team in answer.teams:
        yield "team", team.id, team.name, "", "", "", team.since, " ".join(team.admins)
    answer.teams.clear()
    for key in answer.api_keys:
        owner = key.created_by or "owner not recorded"
        may = " ".join(key.scopes) or UNSCOPED_WORDS
        yield "api_key", key.id, key.name, "", may, key.project_id or "", key.since, owner
    answer.api_keys.clear()
    for binding in answer.bindings:
        limits = " ".join(filter(None, (binding.team_id, binding.project_id)))
        facts = [
            binding.issuer,
            binding.repository_id or "any repository",
            *binding.event_names,
            *(f"{claim}={value}" for claim, value in (binding.conditions or {}).items()),
            binding.added_by,
        ]
        yield (
            *(
                "binding",
                binding.id,
                binding.sub_pattern,
                binding.origin,
                "",
                limits,
                binding.since,
            ),
            " ".join(facts),
        )
    answer.bindings.clear()


def _member(rights: MemberRights, capabilities: list[str]) -> MemberThen:
    member = rights.member
    return MemberThen.from_row(
        member,
        role=rights.role,
        capabilities=capabilities,
        administers=[team.id for team in rights.teams],
        since=format_ms(member.created_at),
    )
