"""Members of an organisation."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.roles import Role
from service.store.tables import Member, Organisation


async def list_owners(session: AsyncSession, org: Organisation, limit: int) -> Sequence[Member]:
    """The present owners, by email address, at most `limit`."""
    query = (
        select(Member)
        .where(
            Member.tenant_id == org.id,
            Member.role == Role.OWNER,
            Member.removed_at.is_(None),
        )
        .order_by(Member.email)
        .limit(limit)
    )
    return (await session.scalars(query)).all()
