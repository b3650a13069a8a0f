"""Whom an organisation may send mail in the operator's name."""

from typing import Final
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.settings import Settings
from service.store.tables import Member, Stream

NOT_MAILED: Final = "mail goes to members, and to the domains of COUNTERSIGN_MAIL_DOMAINS"


async def may_mail(session: AsyncSession, settings: Settings, stream: Stream) -> bool:
    """Whether the address is a member's, or of a domain that the operator allows all."""
    address = urlsplit(stream.url).path.lower()
    if address.rpartition("@")[2] in map(str.lower, settings.mail_domains):
        return True
    members = select(Member.id).where(
        Member.tenant_id == stream.tenant_id,
        func.lower(Member.email) == address,
        Member.removed_at.is_(None),
    )
    return await session.scalar(members.limit(1)) is not None
