"""Queries for passkeys."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.errors import NotFound
from service.store.tables import Member, Organisation, Passkey


async def find_passkey(session: AsyncSession, credential_id: str) -> tuple[Passkey, Member] | None:
    """The passkey with this id and its member, either possibly removed; or None."""
    row = (
        await session.execute(
            select(Passkey, Member)
            .join(Member, Member.id == Passkey.member_id)
            .where(Passkey.id == credential_id)
        )
    ).first()
    return None if row is None else (row[0], row[1])


async def get_own_passkey(session: AsyncSession, member_id: str, passkey_id: str) -> Passkey:
    """The member's active passkey with this id. Raises NotFound."""
    passkey = await session.scalar(
        select(Passkey).where(
            Passkey.id == passkey_id,
            Passkey.member_id == member_id,
            Passkey.removed_at.is_(None),
        )
    )
    if passkey is None:
        raise NotFound("Passkey not found for this member")
    return passkey


async def list_passkeys(session: AsyncSession, member_id: str) -> Sequence[Passkey]:
    """The member's active passkeys, oldest first."""
    query = (
        select(Passkey)
        .where(Passkey.member_id == member_id, Passkey.removed_at.is_(None))
        .order_by(Passkey.added_at, Passkey.id)
    )
    return (await session.scalars(query)).all()


async def count_passkeys(
    session: AsyncSession, org: Organisation, *among: ColumnElement[bool]
) -> dict[str, int]:
    """Number of active passkeys by member id, for members who have any and are `among` these."""
    rows = await session.execute(
        select(Passkey.member_id, func.count())
        .join(Member, Member.id == Passkey.member_id)
        .where(Member.tenant_id == org.id, Passkey.removed_at.is_(None), *among)
        .group_by(Passkey.member_id)
    )
    return {row[0]: row[1] for row in rows}
