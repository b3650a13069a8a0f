"""The services of the dashboard's routes."""

from dataclasses import dataclass

from analytics.model.rows import VerdictSource
from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer
from service.access.callers import Caller
from service.audit.clock_guard import ClockGuard
from service.audit.services import AuditServices
from service.bindings.services import BindingServices
from service.clock import Clock
from service.dashboard.live_places import LivePlaces
from service.orgs.roles import Capability
from service.policy.services import PolicyServices
from service.proxy.caches import PackageCaches
from service.proxy.services import ProxyServices
from service.settings import Settings
from service.sign_in.services import SignInServices
from service.store.store import Store
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class DashboardServices:
    """The groups for each kind of page, and what all pages share."""

    settings: Settings
    clock: Clock
    authenticator: Authenticator
    access: Authorizer
    store: Store
    audit: AuditServices
    bindings: BindingServices
    sign_in: SignInServices
    live: LivePlaces
    policy: PolicyServices
    proxy: ProxyServices
    packages: PackageCaches
    clock_guard: ClockGuard

    async def authorize(
        self, slug: str, capability: Capability, *, keeps_alive: bool = True
    ) -> tuple[Caller, Organisation]:
        """The caller of a page of `slug`, and the organisation, see `Authorizer.authorize`."""
        return await self.access.authorize(
            slug, capability, VerdictSource.DASHBOARD, keeps_alive=keeps_alive
        )
