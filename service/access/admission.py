"""Letting a request in: who is calling, which organisation, may they. In this order."""

from quart import request
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.rows import VerdictSource
from service.access.callers import Caller, Sender
from service.access.capabilities import Capability
from service.orgs.repository import get_org, get_org_by_id
from service.services import services
from service.store.tables import Organisation


async def admit_sender(slug: str) -> tuple[Sender, Organisation]:
    """Who sends audit rows in the current request, and of which organisation.

    Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order.
    """
    here = services()
    sender = await here.authenticator.sender(request)
    async with here.store.read() as session:
        org = await get_org(session, slug)
    sender.require_sending_rights(org)
    return sender, org


async def admit(
    slug: str, capability: Capability, door: VerdictSource = VerdictSource.ADMIN_API
) -> tuple[Caller, Organisation]:
    """The caller of the current request and the organisation `slug`, once both are sure.

    Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order, before
    anything else of the request is looked at.
    """
    here = services()
    caller = await here.authenticator.caller(request, door)
    async with here.store.read() as session:
        org = await get_org(session, slug)
    caller.require(capability, org)
    return caller, org


async def admit_again(
    session: AsyncSession, caller: Caller, org: Organisation, capability: Capability
) -> tuple[Caller, Organisation]:
    """`caller` and `org` as they are inside the transaction that is about to change something.

    Between `admit` and now the body was read, which a client can make last; meanwhile a session
    may have ended, or a role have gone. Raises Unauthenticated, OrgNotFound, Forbidden.
    """
    present = await services().authenticator.refreshed(session, caller)
    present_org = await get_org_by_id(session, org.id)
    present.require(capability, present_org)
    return present, present_org
