"""The map of trust: repositories, their active bindings, and what these installed lately."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta, Struct

from analytics.model.filters import parse_query
from analytics.model.instants import format_us, midnight, optional_us, utc_day
from analytics.query.aggregates import Group
from service.access.callers import is_allowed
from service.access.roles import Capability
from service.audit.refusals import QUERY_REFUSALS
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.ci.providers import job_parts
from service.store.organisations import list_names
from service.store.tables import Binding, Organisation, Project, Team
from service.trust.bindings.repository import list_active_bindings
from service.trust.bindings.rules import ACTIVE_MAX
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, NonNegative, TimestampUs

WINDOW: Final = timedelta(days=30)
REPOSITORIES_MAX: Final = 60
BINDINGS_MAX: Final = 20
"""How many bindings of one repository are listed."""

_GROUPS_MAX: Final = 2 * ACTIVE_MAX
"""Bindings with installs in the window: those that are active, and revoked ones."""

resource = Resource("trust_map", "/trust/map", Tag.BINDINGS, AuditServices)


class Installs(Struct, frozen=True):
    """Installs since `since`, by decision."""

    allowed: NonNegative = 0
    blocked: NonNegative = 0

    def __add__(self, other: "Installs") -> "Installs":
        return Installs(self.allowed + other.allowed, self.blocked + other.blocked)


class MapBinding(Struct, kw_only=True):
    """An active binding, its project and team by name. `job` is its ref or environment, if known.

    Without `event_names` any event is allowed.
    """

    id: str
    job: str | None
    sub_pattern: str
    event_names: list[str]
    project: str | None
    team: str | None
    last_used_at: TimestampUs | None
    installs: Installs | None


class MapRepository(Struct, kw_only=True):
    """A repository: its path, or a subject that names none. `installs` are of all its bindings."""

    name: str
    repository_id: str | None
    bindings: list[MapBinding]
    omitted_bindings: NonNegative
    installs: Installs | None


class TrustMap(Answer):
    """Repositories with active bindings, most installs first.

    Their first bindings are listed. `omitted` are installs of the repositories that are not listed,
    `revoked` those of bindings that are no longer active, `unbound` those without a binding. All
    installs are null for callers without `audit:r`.
    """

    org: str
    since: Annotated[TimestampUs, Meta(description="From when on installs are counted.")]
    binding_count: NonNegative
    repositories: list[MapRepository]
    omitted_repositories: NonNegative
    omitted: Installs | None = None
    revoked: Installs | None = None
    unbound: Installs | None = None


@resource.get("get_trust_map", needs=Capability.OIDC_READ, returns=TrustMap, refuses=QUERY_REFUSALS)
async def trust_map(call: Call[AuditServices]) -> TrustMap:
    """List repositories with their active bindings, and what these installed in 30 days."""
    services, org, now = call.services, call.org, call.services.clock()
    since = midnight(utc_day(now - WINDOW))
    async with call.read() as session:
        bindings = await list_active_bindings(session, org.id)
        names = {
            id_: name
            for table in (Team, Project)
            for id_, name in await list_names(session, org, table)
        }
    installs = None
    if is_allowed(call.caller.require, Capability.AUDIT_READ, org):
        log = await open_log(services.store, services.lake, org, now)
        query = parse_query({"since": [format_us(since)], "decision": ["ALLOWED", "BLOCKED"]})
        time_max_s = services.settings.query_max_s
        groups = await log.groups(query, ["oidc_binding_id"], _GROUPS_MAX, time_max_s)
        installs = {group.values[0]: _installs(group) for group in groups}
    return map_of(org, bindings, names, installs, since)


def map_of(
    org: Organisation,
    bindings: Sequence[Binding],
    names: Mapping[str, str],
    installs: Mapping[str | None, Installs] | None,
    since: datetime,
) -> TrustMap:
    """The map of the active `bindings`, and of `installs` by binding id (None: by no binding)."""
    by_repository: dict[tuple[str, str | None], list[MapBinding]] = defaultdict(list)
    for each in bindings:
        shown, repository = _binding(each, names, installs)
        by_repository[repository, each.repository_id].append(shown)
    repositories = [_repository(*key, own) for key, own in by_repository.items()]
    repositories.sort(
        key=lambda each: (-_total(each.installs), each.name, each.repository_id or "")
    )
    rest = repositories[REPOSITORIES_MAX:]
    answer = TrustMap(
        org=org.slug,
        since=format_us(since),
        binding_count=len(bindings),
        repositories=repositories[:REPOSITORIES_MAX],
        omitted_repositories=len(rest),
    )
    if installs is not None:
        active = {None, *(each.id for each in bindings)}
        answer.omitted = _sum([each.installs for each in rest])
        answer.revoked = _sum([each for id_, each in installs.items() if id_ not in active])
        answer.unbound = installs.get(None, Installs())
    return answer


def _binding(
    binding: Binding, names: Mapping[str, str], installs: Mapping[str | None, Installs] | None
) -> tuple[MapBinding, str]:
    """A binding on the map, and its repository."""
    repository, job = job_parts(binding.sub_pattern) or (binding.sub_pattern, None)
    shown = MapBinding(
        id=binding.id,
        job=job,
        sub_pattern=binding.sub_pattern,
        event_names=binding.event_names,
        project=binding.project_id and names.get(binding.project_id, binding.project_id),
        team=binding.team_id and names.get(binding.team_id, binding.team_id),
        last_used_at=optional_us(binding.last_used_at),
        installs=None if installs is None else installs.get(binding.id, Installs()),
    )
    return shown, repository


def _repository(name: str, repository_id: str | None, bindings: list[MapBinding]) -> MapRepository:
    bindings.sort(key=lambda each: (-_total(each.installs), each.sub_pattern, each.id))
    return MapRepository(
        name=name,
        repository_id=repository_id,
        bindings=bindings[:BINDINGS_MAX],
        omitted_bindings=len(bindings[BINDINGS_MAX:]),
        installs=_sum([each.installs for each in bindings]),
    )


def _sum(parts: Sequence[Installs | None]) -> Installs | None:
    """All of `parts` together; None if they are not counted."""
    counted = [part for part in parts if part is not None]
    return sum(counted, Installs()) if len(counted) == len(parts) else None


def _total(installs: Installs | None) -> int:
    return 0 if installs is None else installs.allowed + installs.blocked


def _installs(group: Group) -> Installs:
    return Installs(group.rows - group.blocked, group.blocked)
