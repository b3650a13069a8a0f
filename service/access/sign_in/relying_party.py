"""The WebAuthn relying party: how passkeys identify the service."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from service.core.settings import Settings

NAME: Final = "Countersign"


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """The scope of passkeys: `id` is a host name, `origin` that of the pages that may use them."""

    id: str
    origin: str


def find_relying_party(settings: Settings) -> RelyingParty | None:
    """The service's relying party, or None if browsers support no passkeys at its address.

    They require a host name (WebAuthn Level 3, 5.1.3), and https except on localhost.
    """
    url = urlsplit(settings.public_url)
    host = url.hostname or ""
    if _is_address(host) or (url.scheme != "https" and host != "localhost"):
        return None
    return RelyingParty(host, settings.origin)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
