"""Memberships that an identity may sign in to.

A member is identified by the subject of their account. The address counts only for the first
sign-in, of an invited person or a user of an allowed domain. It must be verified, and must not
belong to a member who is linked to another account.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.sign_in.identity import Identity
from service.store.tables import AllowedDomain, Member, Organisation


@dataclass(frozen=True, slots=True)
class EligibleMembership:
    """An organisation that an identity may sign in to, as `member` or, if None, as a new one."""

    org: Organisation
    member: Member | None


async def list_eligible_memberships(
    session: AsyncSession, identity: Identity
) -> list[EligibleMembership]:
    """The memberships of `identity`, at most one for each organisation, by slug."""
    by_org = await _linked(session, identity)
    others = [*await _invited(session, identity), *await _of_domain(session, identity)]
    for eligible in others:
        # The linked account wins over the address, which can pass to another person.
        by_org.setdefault(eligible.org.id, eligible)
    return sorted(by_org.values(), key=lambda eligible: eligible.org.slug)


async def _linked(session: AsyncSession, identity: Identity) -> dict[str, EligibleMembership]:
    rows = await session.execute(
        select(Organisation, Member)
        .join(Member, Member.tenant_id == Organisation.id)
        .where(has_identity(identity), Member.removed_at.is_(None))
    )
    return {org.id: EligibleMembership(org, member) for org, member in rows}


async def _invited(session: AsyncSession, identity: Identity) -> list[EligibleMembership]:
    """By invitations not yet linked to an account; oldest first, because the first one counts."""
    # Some providers let users enter any address, such as that of an invited owner.
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
    return [EligibleMembership(org, member) for org, member in rows]


async def _of_domain(session: AsyncSession, identity: Identity) -> list[EligibleMembership]:
    """By an allowed domain, unless the account or address is or was a member's."""
    if not identity.is_of_domain:
        return []
    # Removed members count, too: they must not come back by the rule for their domain.
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
    return [EligibleMembership(org, None) for org in orgs]


def has_identity(identity: Identity) -> ColumnElement[bool]:
    """Condition for members, current or removed, who are linked to this account."""
    return and_(
        Member.identity_provider == identity.provider,
        Member.identity_namespace == identity.namespace,
        Member.identity_subject == identity.subject,
    )


def has_address(identity: Identity) -> ColumnElement[bool]:
    """Condition for members, current or removed, with this address, ignoring case.

    Only ASCII is case-folded: different non-ASCII letters that fold alike are different mailboxes.
    """
    email = identity.email or ""
    if not email.isascii():
        return Member.email == email
    return func.lower(Member.email) == email.lower()
