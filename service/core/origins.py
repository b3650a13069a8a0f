"""Where a package registry is: its URL, its credentials, and the origins its files come from.

Origins are configured and never taken from a document: a registry's page may name any URL.
"""

import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

_OWN_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
"""Some parsers drop white space and control characters from URLs."""


class InvalidOrigin(ValueError):
    """Why a URL cannot be that of a registry; the text does not repeat it: it may hold secrets."""


@dataclass(frozen=True, slots=True)
class WebOrigin:
    """Scheme, host and port (RFC 6454, 4): what a server is asked by, and what it may not leave."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _OWN_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


@dataclass(frozen=True, slots=True)
class Registry:
    """A configured package registry. Its text shows no credentials."""

    url: str
    """Where its documents are, with a slash at the end and without credentials."""

    origin: WebOrigin
    file_origins: frozenset[WebOrigin] = frozenset()
    """Further origins that its files and redirects may be at."""

    authorization: str | None = field(default=None, repr=False)
    """The `Authorization` header for `origin` alone."""

    @property
    def identity(self) -> str:
        """Another one for another URL, other origins or other credentials.

        What is remembered of a registry is remembered under this: other settings or another
        account may see other files.
        """
        parts = (self.url, *sorted(map(str, self.file_origins)), self.authorization or "")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def allows(self, origin: WebOrigin) -> bool:
        """Whether requests may go to `origin`."""
        return origin == self.origin or origin in self.file_origins


def parse_registry(url: str, file_origins: tuple[str, ...] = ()) -> Registry:
    """The registry at `url`, which may carry Basic credentials. Raises InvalidOrigin."""
    parts = _split(url)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise InvalidOrigin("must have no query and no fragment")
    if any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise InvalidOrigin("must have no dot segments in its path")
    origin = _origin(parts)
    return Registry(
        url=f"{origin}{parts.path.rstrip('/')}/",
        origin=origin,
        file_origins=frozenset(map(parse_origin, file_origins)),
        authorization=_authorization(parts),
    )


def parse_origin(url: str) -> WebOrigin:
    """The origin that `url` names and nothing else, such as `https://files.example`.

    Raises InvalidOrigin.
    """
    parts = _split(url)
    if "@" in parts.netloc or parts.path not in {"", "/"} or "?" in url or "#" in url:
        raise InvalidOrigin("must be http:// or https:// and a host, without path or credentials")
    return _origin(parts)


def _split(url: str) -> SplitResult:
    if not _VISIBLE_ASCII.fullmatch(url) or "\\" in url:
        raise InvalidOrigin("must be a URL of visible ASCII characters")
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is out of range
    except ValueError:
        raise InvalidOrigin("is not a URL") from None  # the cause repeats the URL
    if parts.scheme not in _OWN_PORTS or not parts.hostname:
        raise InvalidOrigin("must begin with http:// or https:// and a host")
    return parts


def _origin(parts: SplitResult) -> WebOrigin:
    port = parts.port if parts.port is not None else _OWN_PORTS[parts.scheme]
    return WebOrigin(parts.scheme, parts.hostname or "", port)


def _authorization(parts: SplitResult) -> str | None:
    """The header of the URL's user and password (RFC 7617), which are percent-encoded there."""
    if "@" not in parts.netloc:
        return None
    pair = b":".join(unquote_to_bytes(part or "") for part in (parts.username, parts.password))
    return f"Basic {b64encode(pair).decode()}"


def is_loopback(host: str) -> bool:
    """True if `host` is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
