"""Members end their own sessions; if any ends, an audit row is written."""

from analytics.model.org_envelopes import SessionRevoked
from analytics.model.rows import AuditContext
from service.access.sessions import revoke_sessions
from service.store.store import UnitOfWork
from service.store.tables import Member


async def end_own_session(
    work: UnitOfWork, member: Member, session_id: str, by: AuditContext
) -> None:
    """End this session of the member; do nothing if it has ended or is not theirs."""
    ended = await revoke_sessions(work.session, member.id, work.now, session_id=session_id)
    _record(work, member, ended, by)


async def end_other_sessions(
    work: UnitOfWork, member: Member, own_id: str, by: AuditContext
) -> None:
    """End all of the member's sessions except `own_id`, and their unused sign-in links."""
    ended = await revoke_sessions(work.session, member.id, work.now, except_id=own_id)
    _record(work, member, ended, by)


def _record(work: UnitOfWork, member: Member, ended: int, by: AuditContext) -> None:
    if not ended:
        return
    revoked = SessionRevoked(member_id=member.id, sessions=ended)
    work.record(member.tenant_id, revoked, by, subject=member.id)
