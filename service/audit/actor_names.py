"""The names that people give to actors: API keys by their names, members by their addresses."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import member_actor
from service.store.batching import rows_of, scalars_of
from service.store.tables import ApiKey, Member

ActorNames = Mapping[str, Sequence[str]]
"""The actors with each case-folded name: keys by their names, members by their addresses."""


async def names_of_actors(
    session: AsyncSession, tenant_id: str, actors: Collection[str]
) -> dict[str, str]:
    """The names of those of `actors` that are or were keys or members of the organisation.

    A member may also be given by their bare id, as the subject of rows about them.
    """
    keys = select(ApiKey).where(ApiKey.tenant_id == tenant_id)
    members = select(Member).where(Member.tenant_id == tenant_id)
    names = {key.id: key.name async for key in scalars_of(session, keys, ApiKey.id, list(actors))}
    member_ids = [actor.rpartition(":")[2] for actor in actors]
    async for member in scalars_of(session, members, Member.id, member_ids):
        names[member_actor(member.identity_provider, member.id)] = member.email
        names[member.id] = member.email
    return names


async def actors_by_name(session: AsyncSession, tenant_id: str) -> ActorNames:
    """Every key and member of the organisation, also former ones, by case-folded name."""
    actors: dict[str, list[str]] = {}

    def add(name: str, actor: str) -> None:
        actors.setdefault(name.casefold(), []).append(actor)

    keys = select(ApiKey.name, ApiKey.id).where(ApiKey.tenant_id == tenant_id)
    await rows_of(session, keys, add)
    members = select(Member.email, Member.identity_provider, Member.id)
    await rows_of(
        session,
        members.where(Member.tenant_id == tenant_id),
        lambda email, provider, member_id: add(email, member_actor(provider, member_id)),
    )
    return actors
