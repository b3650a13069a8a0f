"""Which organisations an identity may enter, and as whom.

A member is found by the subject of their account. An address counts once: for somebody who was
invited, or whose domain is let in, and has not been here before. It must be a verified one, and no
account comes in by an address that another account is linked to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.sign_in.identity import Identity
from service.store.tables import AllowedDomain, Member, Organisation


@dataclass(frozen=True, slots=True)
class WayIn:
    """An organisation that lets an identity in: as `member`, or as a new one if that is None."""

    org: Organisation
    member: Member | None


async def list_ways_in(session: AsyncSession, identity: Identity) -> list[WayIn]:
    """Every way in for `identity`, at most one for each organisation, by slug."""
    found = await _linked(session, identity)
    for way in await _invited(session, identity):
        found.setdefault(way.org.id, way)
    for way in await _of_domain(session, identity):
        found.setdefault(way.org.id, way)
    return sorted(found.values(), key=lambda way: way.org.slug)


async def _linked(session: AsyncSession, identity: Identity) -> dict[str, WayIn]:
    rows = await session.execute(
        select(Organisation, Member)
        .join(Member, Member.tenant_id == Organisation.id)
        .where(has_identity(identity), Member.removed_at.is_(None))
    )
    return {org.id: WayIn(org, member) for org, member in rows}


async def _invited(session: AsyncSession, identity: Identity) -> list[WayIn]:
    """By an invitation that no account has taken up yet; the oldest, where there are several."""
    if not identity.is_verified:
        return []
    rows = await session.execute(
        select(Organisation, Member)
        .join(Member, Member.tenant_id == Organisation.id)
        .where(
            has_address(identity),
            Member.identity_provider == identity.provider,
            Member.identity_subject.is_(None),
            Member.removed_at.is_(None),
        )
        .order_by(Member.created_at, Member.id)
    )
    return [WayIn(org, member) for org, member in rows]


async def _of_domain(session: AsyncSession, identity: Identity) -> list[WayIn]:
    """By the domain, unless the account or the address is, or was, a member's: those are barred."""
    if not identity.is_of_domain:
        return []
    is_known = exists().where(
        Member.tenant_id == Organisation.id,
        or_(has_identity(identity), has_address(identity)),
    )
    orgs: Sequence[Organisation] = (
        await session.scalars(
            select(Organisation)
            .join(AllowedDomain, AllowedDomain.tenant_id == Organisation.id)
            .where(
                AllowedDomain.identity_provider == identity.provider,
                AllowedDomain.domain == identity.domain,
                ~is_known,
            )
        )
    ).all()
    return [WayIn(org, None) for org in orgs]


def has_identity(identity: Identity) -> ColumnElement[bool]:
    """True of members, present or removed, who are linked to this account."""
    return and_(
        Member.identity_provider == identity.provider,
        Member.identity_namespace == identity.namespace,
        Member.identity_subject == identity.subject,
    )


def has_address(identity: Identity) -> ColumnElement[bool]:
    """True of members, present or removed, with this address, in upper or lower case.

    Beyond ASCII nothing is folded: other letters that fold to one are other mailboxes.
    """
    email = identity.email or ""
    if not email.isascii():
        return Member.email == email
    return func.lower(Member.email) == email.lower()
