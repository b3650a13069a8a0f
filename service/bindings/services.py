"""What the endpoints and pages about trust work with: bindings, explanations, rejected subjects."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.clock import Clock
from service.issuers.issuers import Issuers
from service.issuers.key_source import KeysFor
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class BindingServices:
    """Bindings, and what tokens are compared with. Tokens must be meant for `audience`."""

    clock: Clock
    access: Authorizer
    store: Store
    issuers: Issuers
    keys_for: KeysFor
    audience: str
