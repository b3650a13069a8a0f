"""The services of the endpoints with which an organisation is managed."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class OrgServices:
    """What managing members, teams, projects, roles and API keys depends on."""

    settings: Settings
    clock: Clock
    access: Authorizer
    store: Store
