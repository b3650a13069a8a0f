"""The services of the dashboard's routes."""

from dataclasses import dataclass

from service.access.sign_in.services import SignInServices
from service.audit.services import AuditServices
from service.trust.bindings.services import BindingServices
from service.web.dependencies import BaseServices


@dataclass(frozen=True, slots=True)
class DashboardServices(BaseServices):
    """Also what most pages share; a page finds what it alone needs by `group_of`."""

    audit: AuditServices
    bindings: BindingServices
    sign_in: SignInServices
