"""What this service is to passkeys."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from service.settings import Settings

NAME: Final = "Countersign"


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """Whom passkeys are for: `id` is a host's name, `origin` that of the only pages to use them."""

    id: str
    origin: str


def find_relying_party(settings: Settings) -> RelyingParty | None:
    """The relying party that this service is, or None where browsers have no passkeys for it.

    They want a name, no address (WebAuthn Level 3, 5.1.3), and https, except on this very machine.
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
