"""Store the demo organisation, completely or not at all."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.filters import parse_query
from analytics.model.instants import utc_day
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.retention import Tier, retention_floor
from analytics.model.rows import VerdictSource
from analytics.model.schema import AUDIT_SCHEMA, JOURNAL_SCHEMA
from analytics.storage.journal_batches import JournalBatch, decode_batches
from service.access.callers import (
    Caller,
    MemberPrincipal,
    RequestOrigin,
    admin_token_caller,
    cli_caller,
)
from service.access.roles import UNSCOPED_RIGHTS, Capability, Role
from service.access.sessions import issue_session
from service.app.composition import Services
from service.ci.verifier.seen_claims import EVENT_NAME, with_tokens
from service.cli.demo.actors import Actors, Person
from service.cli.demo.calendar import Calendar, drawn_id, drawn_request_id, from_us, seeded, to_us
from service.cli.demo.history import Day, History
from service.cli.demo.installs import install_policy
from service.cli.demo.profile import (
    BindingEntry,
    Moment,
    Profile,
    ProfileMember,
    Revocation,
    load_profile,
)
from service.cli.progress import Show
from service.core.ids import new_id
from service.core.version import service_version
from service.orgs.api_keys import issue_api_key
from service.orgs.members import add_member, remove_member
from service.orgs.organisations import create_org
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.packages.policy.repository import set_policy
from service.store.catalog import add_segments
from service.store.journal import list_batches, remove_batches, take_seq
from service.store.organisations import find_org
from service.store.store import UnitOfWork
from service.store.tables import (
    ApiKey,
    Binding,
    ExportEntry,
    Member,
    Organisation,
    Origin,
    Project,
    Team,
)
from service.trust.bindings.changes import add_binding, revoke_binding
from service.trust.rejected.rows import RejectionRecord, write_records
from service.trust.rejected.subjects import KEPT_FOR, record_of

ADMIN_TOKEN: Final = "admin-token"  # noqa: S105 - how the profile names it, not its value
_KEY_LIFETIME: Final = timedelta(days=365)
_BETWEEN_STEPS: Final = timedelta(seconds=7)

SetupStep = Callable[[], Awaitable[None]]


class OrganisationBuilder:
    """Creates the organisation of a profile in one transaction.

    It sets the transaction's `now`, from which every change takes its instant, to instants of the
    history, and finally restores it.
    """

    def __init__(
        self, work: UnitOfWork, services: Services, profile: Profile, calendar: Calendar
    ) -> None:
        self._work = work
        self._services = services
        self._profile = profile
        self._calendar = calendar
        self._operator = cli_caller(services.settings.platform_tenant_id).audit_context
        self._chance = seeded(profile.seed, "changes")
        self._projects: dict[str, Project] = {}
        self._teams: dict[str, Team] = {}
        self._members: dict[str, Member] = {}
        self.keys: dict[str, ApiKey] = {}
        self.bindings: dict[int, Binding] = {}

    async def build(self, slug: str) -> Organisation:
        """The organisation after all its changes. Raises Invalid, Forbidden, BindingExists."""
        now = self._work.now
        self._work.now = self._calendar.opened_at
        org = await create_org(self._work, slug, "org", self._operator)
        for at, step in sorted(self._timed(self._script(org)), key=lambda timed: timed[0]):
            self._work.now = at
            await step()
        self._work.now = now
        return org

    @property
    def members(self) -> list[Member]:
        """The members, former ones too."""
        return list(self._members.values())

    def actors(self) -> Actors:
        """All actors that the history's rows can name."""
        bindings: dict[str, list[Binding]] = {}
        for binding in self.bindings.values():
            bindings.setdefault(binding.sub_pattern, []).append(binding)
        entries = self._profile.members
        people = {name: Person(name, each, entries[name]) for name, each in self._members.items()}
        return Actors(people, self.keys, bindings)

    def _timed(
        self, script: Iterator[tuple[Moment | None, SetupStep]]
    ) -> Iterator[tuple[datetime, SetupStep]]:
        """The steps with their instants; those without a moment follow each other immediately."""
        at = self._calendar.opened_at
        for moment, step in script:
            if moment is None:
                at += _BETWEEN_STEPS
            yield at if moment is None else self._calendar.instant(moment), step

    def _script(self, org: Organisation) -> Iterator[tuple[Moment | None, SetupStep]]:
        profile = self._profile
        for project in profile.projects:
            yield None, partial(self._make_project, org, project)
        for name, member in profile.members.items():
            yield member.joins, partial(self._join, org, name, member)
            if member.leaves is not None:
                yield member.leaves, partial(self._leave, org, name)
        for team, admins in profile.teams.items():
            yield None, partial(self._make_team, org, team, admins)
        for role, capabilities in profile.role_overrides.items():
            yield None, partial(self._override, org, role, capabilities)
        yield None, partial(self._set_policy, org, is_after_incident=False)
        yield profile.incident, partial(self._set_policy, org, is_after_incident=True)
        for name, key in profile.keys.items():
            yield key.issued, partial(self._issue, org, name, key.project)
        for number, binding in enumerate(profile.bindings):
            yield binding.added, partial(self._bind, org, number, binding)
            if binding.revoked is not None:
                yield binding.revoked, partial(self._revoke, org, number, binding.revoked)

    async def _make_project(self, org: Organisation, name: str) -> None:
        self._projects[name] = await create_project(self._work, org, name, self._operator)

    async def _join(self, org: Organisation, name: str, entry: ProfileMember) -> None:
        self._members[name] = await add_member(
            self._work, org, entry.email, entry.role, entry.identity_provider, self._operator
        )

    async def _leave(self, org: Organisation, name: str) -> None:
        await remove_member(self._work, org, self._members[name], self._operator)

    async def _make_team(self, org: Organisation, name: str, admins: tuple[str, ...]) -> None:
        team = await create_team(self._work, org, name, self._operator)
        self._teams[name] = team
        for admin in admins:
            await set_team_admin(
                self._work, team, self._members[admin], self._operator, is_admin=True
            )

    async def _override(
        self, org: Organisation, role: Role, capabilities: tuple[Capability, ...]
    ) -> None:
        await set_role_override(self._work, org, role, capabilities, self._operator)

    async def _set_policy(self, org: Organisation, *, is_after_incident: bool) -> None:
        policy = install_policy(self._profile, is_after_incident=is_after_incident)
        author = self._author(org, self._profile.policy.by, Capability.POLICY_WRITE)
        await set_policy(self._work, org, policy, author.audit_context)

    async def _issue(self, org: Organisation, name: str, project: str | None) -> None:
        limit = None if project is None else self._projects[project]
        # The key's value is discarded: the demo's keys appear only in its history.
        self.keys[name], _ = await issue_api_key(
            self._work,
            org,
            name,
            limit,
            self._operator,
            scopes=UNSCOPED_RIGHTS,
            expires_at=self._work.now + _KEY_LIFETIME,
        )

    async def _bind(self, org: Organisation, number: int, entry: BindingEntry) -> None:
        origin = Origin.ORG_ADMIN if entry.team is None else Origin.TEAM_ADMIN
        body = {
            "issuer": self._profile.issuer,
            "sub_pattern": entry.sub,
            "repository_id": self._profile.repositories[entry.repository],
            "event_names": list(entry.event_names),
            "origin": origin.value,
            "project_id": None if entry.project is None else self._projects[entry.project].id,
            "team_id": None if entry.team is None else self._teams[entry.team].id,
        }
        self.bindings[number] = await add_binding(
            self._work,
            org,
            body,
            self._author(org, entry.added.by, Capability.OIDC_WRITE),
            self._services.issuers,
        )

    async def _revoke(self, org: Organisation, number: int, revoked: Revocation) -> None:
        binding = self.bindings[number]
        author = self._author(org, revoked.by, Capability.OIDC_WRITE)
        await revoke_binding(self._work, org, binding.id, revoked.reason, author)
        await self._work.session.refresh(binding)

    def _author(self, org: Organisation, name: str, needed: Capability) -> Caller:
        """The member `name`, or ADMIN_TOKEN, with their actual rights. Raises Forbidden."""
        origin = RequestOrigin(
            VerdictSource.ADMIN_API,
            drawn_request_id(self._chance, to_us(self._work.now)),
            f"{self._profile.networks.office}.{self._chance.randint(10, 40)}",
        )
        if name == ADMIN_TOKEN:
            return admin_token_caller(origin)
        member = self._members[name]
        teams = (team for team, admins in self._profile.teams.items() if name in admins)
        author = MemberPrincipal(
            session_id=drawn_id(self._chance, "sess"),
            member_id=member.id,
            tenant_id=org.id,
            role=Role(member.role),
            identity_provider=member.identity_provider,
            authenticated_at=self._work.now,
            admin_of=frozenset(self._teams[team].id for team in teams),
            origin=origin,
            is_cross_site=False,
        )
        author.require(needed, org)
        return author


DEMO_ORG: Final = "acme"
_OWNER_CLAIM: Final = "repository_owner_id"
_OWNER_ID: Final = "58017112"


async def seed_demo(services: Services, now: datetime, on_progress: Show) -> bool:
    """Create the organisation DEMO_ORG with 90 days of history up to `now`.

    False, and nothing changes, if it exists already. `on_progress` receives the number of rows
    stored so far and in total. Everything is one transaction: until its commit none of it is
    visible, and after a crash only files remain that no catalog names.
    """
    profile, calendar = load_profile(), Calendar(now)
    async with services.store.write() as work:
        if await find_org(work.session, DEMO_ORG) is not None:
            return False
        builder = OrganisationBuilder(work, services, profile, calendar)
        org = await builder.build(DEMO_ORG)
        history = await services.lake.run_in_thread(History, profile, calendar, builder.actors())
        usage = history.usage()
        for binding in builder.bindings.values():
            _mark_used(binding, usage)
        for name, last_used_at in history.last_uses().items():
            builder.keys[name].last_used_at = last_used_at
        await _sign_members_in(work, builder.members, history)
        await _store_rejections(work, org.id, history)
        await _store(work, services, org, history, on_progress)
    return True


def _mark_used(binding: Binding, usage: Mapping[str, tuple[int, int]]) -> None:
    """Set the usage that the verifier would have recorded on the binding."""
    uses, last_us = usage.get(binding.id, (0, None))
    binding.use_count = uses
    binding.last_used_at = None if last_us is None else from_us(last_us)
    if binding.last_used_at is not None:
        binding.seen_since = binding.added_at
        seen = {_OWNER_CLAIM: [_OWNER_ID]}
        if len(binding.event_names) == 1:
            seen[EVENT_NAME] = binding.event_names
        binding.seen_claims = with_tokens(None, seen, utc_day(binding.last_used_at))


async def _sign_members_in(work: UnitOfWork, members: Collection[Member], history: History) -> None:
    """Link the members to accounts as their first sign-in did, with the session of the last one.

    Its secret is thrown away: the session tells when they were last seen, and opens nothing.
    """
    last = history.last_sign_ins()
    for member in members:
        if member.id in last and member.removed_at is None:
            member.identity_namespace = "demo"
            member.identity_subject = member.id
            await issue_session(work.session, member, last[member.id])


async def _store_rejections(work: UnitOfWork, tenant_id: str, history: History) -> None:
    """Store the rejections that the verifier would still keep."""
    records: dict[str, RejectionRecord] = {}
    for rejection in history.rejections(tenant_id):
        record = record_of(rejection)
        if (first := records.setdefault(record.digest, record)) is not record:
            first.add(record)
    recent = [record for record in records.values() if record.last_at >= work.now - KEPT_FOR]
    await write_records(work.session, tenant_id, recent)


async def _store(
    work: UnitOfWork,
    services: Services,
    org: Organisation,
    history: History,
    on_progress: Show,
) -> None:
    """Store each day's rows as one segment, including the rows of that day's changes.

    The changes' rows go through the journal as always, but are sealed here: otherwise they would
    become a second, tiny segment for many days. Their seq numbers and the history's are
    consecutive, as this transaction holds the counter, and are assigned by time.
    """
    await work.journal_rows()
    batches = await list_batches(work.session, org.id)
    await remove_batches(work.session, batches)
    await take_seq(work.session, history.rows, work.now)
    seq, done = min(batch.first_seq for batch in batches), 0
    total = history.rows + sum(batch.rows for batch in batches)
    for day in history.days:
        recorded = [batch for batch in batches if batch.day == day.day]
        rows = await services.lake.run_in_thread(_rows, history, day, recorded, seq + done)
        if rows.num_rows == 0:
            continue
        segment = await services.lake.store_rows(org.id, day.day, new_id("seg"), rows)
        await add_segments(work.session, [segment], work.now)
        work.session.add_all(export_entries(org.id, Tier(org.tier), rows))
        done += segment.rows
        on_progress(done, total)


def _rows(history: History, day: Day, recorded: list[JournalBatch], first_seq: int) -> pa.Table:
    """All rows of `day` as AUDIT_SCHEMA, oldest first, with seq counting up from `first_seq`."""
    changes = decode_batches(recorded).select(JOURNAL_SCHEMA.names)
    rows = pa.concat_tables([changes, history.table(day)]).sort_by("created_at")
    seq = pa.array(range(first_seq, first_seq + rows.num_rows), pa.int64())
    return rows.add_column(0, AUDIT_SCHEMA.field("seq"), seq)


def export_entries(tenant_id: str, tier: Tier, rows: pa.Table) -> Iterator[ExportEntry]:
    """The exports that begin and end within `rows` (AUDIT_SCHEMA), by an organisation's tier."""
    events = pa.array([AuditExported.event, AuditExportFinished.event], pa.string())
    begun: dict[str, dict[str, Any]] = {}
    about = rows.filter(pc.is_in(rows["event"], value_set=events)).sort_by("seq")
    for row in about.to_pylist():
        keys = json.loads(row["payload"])
        if row["event"] == AuditExported.event:
            begun[keys["export_id"]] = row
        else:
            yield _entry(tenant_id, tier, begun[keys["export_id"]], row, keys)


def _entry(
    tenant_id: str,
    tier: Tier,
    begun: dict[str, Any],
    ended: dict[str, Any],
    finished: dict[str, Any],
) -> ExportEntry:
    asked = json.loads(begun["payload"])
    floor = retention_floor(tier, begun["created_at"])
    within = parse_query(asked["filters"]).not_before(floor)
    return ExportEntry(
        id=asked["export_id"],
        tenant_id=tenant_id,
        actor=begun["actor"],
        actor_source=begun["actor_source"],
        verdict_source=begun["verdict_source"],
        request_id=begun["request_id"],
        format=asked["format"],
        compression=None,
        is_raw=False,
        filters=asked["filters"],
        since=within.since,
        until=within.until,
        retention_floor=floor,
        watermark=begun["seq"] - 1,
        rows=asked["rows"],
        version=service_version(),
        started_at=begun["created_at"],
        progress_at=ended["created_at"],
        sent_rows=finished["rows"],
        sent_bytes=finished["bytes"],
        ended_at=ended["created_at"],
        is_complete=finished["complete"],
        sha256=finished["sha256"],
    )
