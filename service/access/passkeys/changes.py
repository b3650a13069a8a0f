"""Add and remove passkeys; every change writes an audit row."""

from typing import Final

from analytics.model.org_envelopes import PasskeyRegistered, PasskeyRemoved
from analytics.model.rows import AuditContext
from service.access.passkeys.ceremonies import NewCredential
from service.access.passkeys.challenges import RegistrationChallenge
from service.access.passkeys.repository import find_passkey, get_own_passkey, list_passkeys
from service.access.refusals import PASSKEY_NOT_UNDER_WAY
from service.access.sign_in.completion import consume
from service.core.errors import Conflict
from service.core.text_rules import check_name
from service.store.store import UnitOfWork
from service.store.tables import Member, Passkey

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
