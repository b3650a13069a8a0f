"""Dependencies of the endpoints and pages for bindings, explanations and rejected subjects."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.ci.issuers.issuers import Issuers
from service.ci.issuers.key_source import KeysFor
from service.core.clock import Clock
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
