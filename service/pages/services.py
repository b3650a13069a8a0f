"""The services of the dashboard's routes."""

from dataclasses import dataclass

from analytics.model.rows import VerdictSource
from service.access.authorization import Authorizer
from service.access.callers import Caller
from service.access.roles import Capability
from service.access.sign_in.services import SignInServices
from service.audit.services import AuditServices
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.store import Store
from service.store.tables import Organisation
from service.trust.bindings.services import BindingServices


@dataclass(frozen=True, slots=True)
class DashboardServices:
    """What most pages share; a page finds what it alone needs by `group_of`."""

    settings: Settings
    clock: Clock
    access: Authorizer
    store: Store
    audit: AuditServices
    bindings: BindingServices
    sign_in: SignInServices

    async def authorize(
        self, slug: str, capability: Capability, *, keeps_alive: bool = True
    ) -> tuple[Caller, Organisation]:
        """The caller of a page of `slug`, and the organisation, see `Authorizer.authorize`."""
        return await self.access.authorize(
            slug, capability, VerdictSource.DASHBOARD, keeps_alive=keeps_alive
        )
