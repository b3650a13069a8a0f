"""Passkeys: queries, additions and removals; every change writes an audit row."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.org_envelopes import PasskeyRegistered, PasskeyRemoved
from analytics.model.rows import AuditContext
from service.access.passkeys.ceremonies import NewCredential
from service.access.passkeys.challenges import RegistrationChallenge
from service.access.refusals import PASSKEY_NOT_UNDER_WAY
from service.access.sign_in.completion import consume
from service.core.errors import Conflict, NotFound
from service.core.text_rules import check_name
from service.store.store import UnitOfWork
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


PASSKEY_EXISTS: Final = Conflict.of("this passkey is registered already")

PER_MEMBER_MAX: Final = 20
TOO_MANY_PASSKEYS: Final = Conflict.of(
    "limit of {limit} passkeys reached: remove one first", limit=PER_MEMBER_MAX
)


async def add_passkey(
    work: UnitOfWork,
    member: Member,
    challenge: RegistrationChallenge,
    made: NewCredential,
    name: str,
    by: AuditContext,
) -> Passkey:
    """Add the passkey that was created for `challenge` to `member`.

    Raises Invalid for the name, PASSKEY_NOT_UNDER_WAY, PASSKEY_EXISTS, TOO_MANY_PASSKEYS.
    """
    check_name(name)
    handle = member.user_handle or challenge.user_handle
    # A concurrent registration may have set another handle, under which this passkey would not be
    # found.
    if handle != challenge.user_handle or not await consume(work, challenge):
        raise PASSKEY_NOT_UNDER_WAY
    # Also one of another member or a removed one: ids are chosen by authenticators (7.1, step 26).
    if await find_passkey(work.session, made.id) is not None:
        raise PASSKEY_EXISTS
    if len(await list_passkeys(work.session, member.id)) >= PER_MEMBER_MAX:
        raise TOO_MANY_PASSKEYS(limit=PER_MEMBER_MAX)
    member.user_handle = handle
    passkey = Passkey(
        id=made.id,
        member_id=member.id,
        name=name,
        public_key=made.public_key,
        transports=made.transports,
        sign_count=made.sign_count,
        use_count=0,
        added_at=work.now,
    )
    work.session.add(passkey)
    await work.session.flush()
    registered = PasskeyRegistered(member_id=member.id, credential_id=passkey.id)
    work.record(member.tenant_id, registered, by, subject=member.id)
    return passkey


async def remove_passkey(
    work: UnitOfWork, member: Member, passkey_id: str, by: AuditContext
) -> None:
    """Remove a passkey of `member`. Raises NotFound if they have no such passkey."""
    _remove(work, member, await get_own_passkey(work.session, member.id, passkey_id), by)


async def remove_all_passkeys(work: UnitOfWork, member: Member, by: AuditContext) -> int:
    """Remove all passkeys of `member`, each with an audit row; how many they had."""
    passkeys = await list_passkeys(work.session, member.id)
    for passkey in passkeys:
        _remove(work, member, passkey, by)
    return len(passkeys)


def _remove(work: UnitOfWork, member: Member, passkey: Passkey, by: AuditContext) -> None:
    passkey.removed_at = work.now
    removed = PasskeyRemoved(member_id=member.id, credential_id=passkey.id)
    work.record(member.tenant_id, removed, by, subject=member.id)
