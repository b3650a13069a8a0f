"""The map of trust: repositories, their active bindings, and what these installed lately."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct

from analytics.model.filters import parse_query
from analytics.model.instants import format_us, midnight, utc_day
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
from service.web.models import Answer, NonNegative, Omittable, TimestampUs

WINDOW: Final = timedelta(days=30)
REPOSITORIES_MAX: Final = 60
BINDINGS_MAX: Final = 200
"""How many bindings are listed, of these repositories."""

resource = Resource("trust_map", "/trust/map", Tag.BINDINGS, AuditServices)


class Installs(Struct, frozen=True):
    """Installs since `since`, by decision."""

    allowed: NonNegative = 0
    blocked: NonNegative = 0


class MapBinding(Answer, kw_only=True):
    """An active binding, its project and team by name; without `event_names` any event is allowed.

    `repository` is a path, and `job` its ref or environment; or the subject, if it names none.
    """

    id: str
    repository: str
    repository_id: str | None
    job: str | None
    sub_pattern: str
    event_names: list[str]
    conditions: Omittable[dict[str, str]] = UNSET
    project: str | None
    team: str | None
    last_used_at: TimestampUs | None
    installs: Installs | None

    @property
    def scope(self) -> tuple[str, str]:
        """What it may act for: a team or project by name; ("", "") for all of the organisation."""
        if self.team is not None:
            return "team", self.team
        return ("", "") if self.project is None else ("project", self.project)

    @property
    def allowed(self) -> int:
        """Its installs that were let through; 0 if they are not counted."""
        return 0 if self.installs is None else self.installs.allowed


class TrustMap(Answer):
    """The active bindings by repository, those with most installs first.

    `elsewhere` are installs of bindings that are not listed or no longer active, `unbound` those
    without a binding. All installs are null for callers without `audit:r`.
    """

    org: str
    since: Annotated[TimestampUs, Meta(description="From when on installs are counted.")]
    bindings: list[MapBinding]
    repository_count: NonNegative
    binding_count: NonNegative
    elsewhere: Installs | None
    unbound: Installs | None


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
    if not is_allowed(call.caller.require, Capability.AUDIT_READ, org):
        return map_of(org, bindings, names, None, since)
    log = await open_log(services.store, services.lake, org, now)
    query = parse_query({"since": [format_us(since)], "decision": ["ALLOWED", "BLOCKED"]})
    # Twice as many as may be active: some were revoked since.
    groups = await log.groups(
        query, ["oidc_binding_id"], 2 * ACTIVE_MAX, services.settings.query_max_s
    )
    installs = {each.values[0]: Installs(each.rows - each.blocked, each.blocked) for each in groups}
    return map_of(org, bindings, names, installs, since)


resource.get("get_trust_map", needs=Capability.OIDC_READ, returns=TrustMap, refuses=QUERY_REFUSALS)(
    trust_map
)


def map_of(
    org: Organisation,
    bindings: Sequence[Binding],
    names: Mapping[str, str],
    installs: Mapping[str | None, Installs] | None,
    since: datetime,
) -> TrustMap:
    """The map of the active `bindings`, and of `installs` by binding id (None: by no binding)."""
    shown = [_binding(each, names, installs) for each in bindings]
    weights: Counter[tuple[str, str]] = Counter()
    for each in shown:
        weights[_place(each)] += each.allowed
    shown.sort(key=lambda each: (-weights[_place(each)], _place(each), -each.allowed, each.id))
    first = list(dict.fromkeys(map(_place, shown)))[:REPOSITORIES_MAX]
    listed = [each for each in shown if _place(each) in first][:BINDINGS_MAX]
    unlisted = {} if installs is None else dict(installs)
    unbound = unlisted.pop(None, Installs())
    for each in listed:
        unlisted.pop(each.id, None)
    return TrustMap(
        org=org.slug,
        since=format_us(since),
        bindings=listed,
        repository_count=len(weights),
        binding_count=len(shown),
        elsewhere=None if installs is None else total_of(unlisted.values()),
        unbound=None if installs is None else unbound,
    )


def _binding(
    binding: Binding, names: Mapping[str, str], installs: Mapping[str | None, Installs] | None
) -> MapBinding:
    repository, job = job_parts(binding.sub_pattern) or (binding.sub_pattern, None)
    return MapBinding.from_row(
        binding,
        repository=repository,
        job=job,
        conditions=binding.conditions or UNSET,
        project=binding.project_id and names.get(binding.project_id, binding.project_id),
        team=binding.team_id and names.get(binding.team_id, binding.team_id),
        installs=None if installs is None else installs.get(binding.id, Installs()),
    )


def _place(binding: MapBinding) -> tuple[str, str]:
    """What tells repositories apart: a name may be given away, and taken by another one."""
    return binding.repository, binding.repository_id or ""


def total_of(parts: Iterable[Installs]) -> Installs:
    """All of `parts` together."""
    counted = list(parts)
    return Installs(sum(each.allowed for each in counted), sum(each.blocked for each in counted))
