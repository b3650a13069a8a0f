"""Dependencies of the endpoints and pages for bindings, explanations and rejected subjects."""

from dataclasses import dataclass

from service.ci.issuers.issuers import Issuers
from service.ci.issuers.key_source import KeysFor
from service.web.dependencies import BaseServices


@dataclass(frozen=True, slots=True)
class BindingServices(BaseServices):
    """Also what tokens are matched with."""

    issuers: Issuers
    keys_for: KeysFor
