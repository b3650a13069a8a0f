"""Create the demo organisation by the same changes as real ones, each at its own instant.

So validation, permissions and audit rows are the service's own, and match the bindings.
"""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from analytics.model.rows import VerdictSource
from service.access.callers import (
    Caller,
    MemberPrincipal,
    RequestOrigin,
    admin_token_caller,
    cli_caller,
)
from service.access.roles import UNSCOPED_RIGHTS, Capability, Role
from service.app.composition import Services
from service.cli.demo.actors import Actors, Key, Person, Trust
from service.cli.demo.calendar import Calendar, drawn_id, drawn_request_id, seeded, to_us
from service.cli.demo.installs import install_policy
from service.cli.demo.profile import BindingEntry, Moment, Profile, ProfileMember, Revocation
from service.orgs.api_keys import issue_api_key
from service.orgs.members import add_member, remove_member
from service.orgs.organisations import create_org
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.packages.policy.repository import set_policy
from service.store.store import UnitOfWork
from service.store.tables import ApiKey, Binding, Member, Organisation, Origin, Project, Team
from service.trust.bindings.changes import add_binding, revoke_binding

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
        self._keys: dict[str, ApiKey] = {}
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

    @property
    def keys(self) -> dict[str, ApiKey]:
        """The keys by name."""
        return dict(self._keys)

    def actors(self) -> Actors:
        """All actors that the history's rows can name."""
        trusts: dict[str, list[Trust]] = {}
        for binding in self.bindings.values():
            trusts.setdefault(binding.sub_pattern, []).append(_trust(binding))
        entries = self._profile.members
        return Actors(
            people={
                name: _person(name, member, entries[name]) for name, member in self._members.items()
            },
            keys={name: Key(key.id, key.project_id) for name, key in self._keys.items()},
            trusts=trusts,
        )

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
        for project in profile.projects.names:
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
        self._keys[name], _ = await issue_api_key(
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


def _person(name: str, member: Member, entry: ProfileMember) -> Person:
    return Person(
        name=name,
        member_id=member.id,
        identity_provider=entry.identity_provider,
        has_passkey=entry.has_passkey,
        joined_at=member.created_at,
        left_at=member.removed_at,
    )


def _trust(binding: Binding) -> Trust:
    return Trust(
        binding_id=binding.id,
        origin=Origin(binding.origin),
        project_id=binding.project_id,
        event_names=frozenset(binding.event_names),
        added_us=to_us(binding.added_at),
        revoked_us=None if binding.revoked_at is None else to_us(binding.revoked_at),
    )
