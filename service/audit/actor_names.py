"""The names that people give to actors: API keys by their names, members by their addresses."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import member_actor
from service.store.batching import rows_of, scalars_of
from service.store.tables import ApiKey, MachineToken, Member

_MACHINE: Final = "mtok_"
"""How the id of a machine token begins."""

ActorNames = Mapping[str, Sequence[str]]
"""The actors with each case-folded name: keys by their names, members by their addresses."""


async def names_of_actors(
    session: AsyncSession, tenant_id: str, actors: Collection[str]
) -> dict[str, str]:
    """The names of those of `actors` that are or were keys or members of the organisation.

    As subjects of rows, members may be given by their bare ids, and machines by their tokens'.
    """
    keys = select(ApiKey).where(ApiKey.tenant_id == tenant_id)
    members = select(Member).where(Member.tenant_id == tenant_id)
    names = {key.id: key.name async for key in scalars_of(session, keys, ApiKey.id, list(actors))}
    member_ids = [actor.rpartition(":")[2] for actor in actors]
    async for member in scalars_of(session, members, Member.id, member_ids):
        names[member_actor(member.identity_provider, member.id)] = member.email
        names[member.id] = member.email
    machines = select(MachineToken).where(MachineToken.tenant_id == tenant_id)
    tokens = [actor for actor in actors if actor.startswith(_MACHINE)]
    async for token in scalars_of(session, machines, MachineToken.id, tokens):
        names[token.id] = f"machine {token.name}"
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
