"""The services of the dashboard's routes."""

from dataclasses import dataclass

from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer
from service.audit.services import AuditServices
from service.bindings.services import BindingServices
from service.clock import Clock
from service.dashboard.live_places import LivePlaces
from service.settings import Settings
from service.sign_in.services import SignInServices
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class DashboardServices:
    """The groups for the audit log, bindings and sign-in, and what all pages share."""

    settings: Settings
    clock: Clock
    authenticator: Authenticator
    access: Authorizer
    store: Store
    audit: AuditServices
    bindings: BindingServices
    sign_in: SignInServices
    live: LivePlaces
