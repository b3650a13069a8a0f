"""Display names of members, teams and projects, which rows name by id."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import member_actor
from service.store.batching import scalars_of
from service.store.tables import Member, Project, Team


@dataclass(frozen=True, slots=True)
class Person:
    """An actor: `name` is a member's address, or else the `actor` as in audit rows."""

    name: str
    actor: str


@dataclass(frozen=True, slots=True)
class Names:
    """Addresses by actor, names of teams and projects by id, where known."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)

    def person(self, actor: str) -> Person:
        """`actor` with its display name."""
        return Person(self.addresses.get(actor, actor), actor)


async def find_names(
    session: AsyncSession,
    tenant_id: str,
    *,
    actors: Collection[str] = (),
    teams: Collection[str] = (),
    projects: Collection[str] = (),
) -> Names:
    """The names of those that belong to the organisation, including former members."""
    return Names(
        addresses=await _addresses(session, tenant_id, actors),
        teams={
            team.id: team.name
            async for team in scalars_of(
                session, select(Team).where(Team.tenant_id == tenant_id), Team.id, list(teams)
            )
        },
        projects={
            project.id: project.name
            async for project in scalars_of(
                session,
                select(Project).where(Project.tenant_id == tenant_id),
                Project.id,
                list(projects),
            )
        },
    )


async def _addresses(
    session: AsyncSession, tenant_id: str, actors: Collection[str]
) -> dict[str, str]:
    members = select(Member).where(Member.tenant_id == tenant_id)
    ids = [actor.rpartition(":")[2] for actor in actors]
    return {
        member_actor(member.identity_provider, member.id): member.email
        async for member in scalars_of(session, members, Member.id, ids)
    }
