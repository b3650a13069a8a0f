"""Organisations: what their members see of them, and only the operator changes."""

from analytics.model.instants import format_ms, optional_ms
from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.roles import Capability
from service.orgs.services import OrgServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer
from service.web.parameter_types import TimestampMs

resource = Resource("organisation", "", Tag.ORGANISATION, OrgServices)


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
async def show(call: Call[OrgServices]) -> OrganisationEntry:
    """Show the organisation's tier and legal hold. Only the operator changes them."""
    org = call.org
    return OrganisationEntry(
        id=org.id,
        slug=org.slug,
        tier=org.tier,
        retention_days=RETENTION_DAYS[Tier(org.tier)],
        created_at=format_ms(org.created_at),
        held_since=optional_ms(org.held_since),
        held_reason=org.held_reason,
    )
