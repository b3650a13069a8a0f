"""Dependencies of the endpoints and pages for bindings, explanations and rejected subjects."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.clock import Clock
from service.issuers.issuers import Issuers
from service.issuers.key_source import KeysFor
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class BindingServices:
    """Dependencies for bindings and token matching. `audience` is the required `aud` claim."""

    clock: Clock
    access: Authorizer
    store: Store
    issuers: Issuers
    keys_for: KeysFor
    audience: str
