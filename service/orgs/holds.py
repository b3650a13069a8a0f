"""Legal holds: no row of an organisation on hold is deleted, regardless of its age."""

from typing import Final

from analytics.model.org_envelopes import LegalHoldChanged
from analytics.model.rows import AuditContext
from service.core.errors import Invalid
from service.core.text_rules import is_plain, parse_reason
from service.store.store import UnitOfWork
from service.store.tables import Organisation

HOLD_REASON_MISSING: Final = Invalid.of("a legal hold needs a reason", field="reason")


async def hold(work: UnitOfWork, org: Organisation, reason: str, by: AuditContext) -> None:
    """Start or update a legal hold. Raises Invalid.

    A repeated hold replaces the reason and keeps `held_since`. The same reason again changes
    nothing and adds no audit row.
    """
    why = parse_reason(reason)
    if why is None or not any(map(is_plain, why)):
        raise HOLD_REASON_MISSING
    if org.held_since is not None and org.held_reason == why:
        return
    org.held_since = org.held_since or work.now
    org.held_reason = why
    work.record(org.id, LegalHoldChanged(held=True, reason=why), by)


async def release(
    work: UnitOfWork, org: Organisation, reason: str | None, by: AuditContext
) -> None:
    """End the hold; without one nothing changes and no audit row is added. Raises Invalid."""
    why = parse_reason(reason)
    if org.held_since is None:
        return
    org.held_since = org.held_reason = None
    work.record(org.id, LegalHoldChanged(held=False, reason=why), by)
