"""The services of the dashboard's routes."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.access.sign_in.services import SignInServices
from service.audit.services import AuditServices
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.store import Store
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
