"""The names that people give to actors: API keys by their names, members by their addresses."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import member_actor
from service.audit.search import ActorNames
from service.store.batching import scalars_of
from service.store.tables import ApiKey, Member


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
    for key_id, name in await session.execute(
        select(ApiKey.id, ApiKey.name).where(ApiKey.tenant_id == tenant_id)
    ):
        actors.setdefault(name.casefold(), []).append(key_id)
    for member_id, provider, email in await session.execute(
        select(Member.id, Member.identity_provider, Member.email).where(
            Member.tenant_id == tenant_id
        )
    ):
        actors.setdefault(email.casefold(), []).append(member_actor(provider, member_id))
    return actors
