"""Organisations: their slug, tier and legal hold, which only the operator changes."""

import re
from typing import Final

from analytics.model.org_envelopes import LegalHoldChanged, OrgCreated, OrgTierChanged
from analytics.model.retention import RETENTION_DAYS, Tier
from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid
from service.core.ids import new_id
from service.core.text_rules import check_choice, is_plain, parse_reason
from service.store.organisations import find_org
from service.store.store import UnitOfWork
from service.store.tables import FormerTier, Organisation
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, TimestampMs

SLUG_PATTERN: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?"
_SLUG: Final = re.compile(SLUG_PATTERN, re.ASCII)

resource = Resource("organisation", "", Tag.ORGANISATION, BaseServices)


class OrganisationEntry(Answer):
    """An organisation. `retention_days` is null if its audit rows are shown permanently."""

    id: str
    slug: str
    tier: str
    retention_days: int | None
    created_at: TimestampMs
    held_since: TimestampMs | None
    held_reason: str | None


@resource.get("get_organisation", needs=Capability.ORG_ADMIN, returns=OrganisationEntry)
async def show(call: Call[BaseServices]) -> OrganisationEntry:
    """Show the organisation's tier and legal hold. Only the operator changes them."""
    retention_days = RETENTION_DAYS[Tier(call.org.tier)]
    return OrganisationEntry.from_row(call.org, retention_days=retention_days)


async def create_org(work: UnitOfWork, slug: str, tier: str, by: AuditContext) -> Organisation:
    """Create an organisation. Raises Invalid, Conflict."""
    if not _SLUG.fullmatch(slug):
        raise Invalid("slug must be 1 to 64 letters, digits and inner hyphens", field="slug")
    if await find_org(work.session, slug) is not None:
        raise Conflict(f"organisation {slug} already exists")
    org = Organisation(
        id=new_id("org"),
        slug=slug,
        tier=check_choice("tier", tier, Tier),
        role_overrides={},
        created_at=work.now,
    )
    work.session.add(org)
    await work.session.flush()
    work.record(org.id, OrgCreated(slug=slug, tier=tier), by)
    return org


async def set_tier(work: UnitOfWork, org: Organisation, tier: str, by: AuditContext) -> None:
    """Change the organisation's tier and record the former one. Raises Invalid."""
    before = org.tier
    org.tier = check_choice("tier", tier, Tier)
    if before != org.tier:
        await work.session.merge(FormerTier(tenant_id=org.id, tier=before, left_at=work.now))
        work.record(org.id, OrgTierChanged(tier_before=before, tier_after=org.tier), by)


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
