"""Which URLs in an upstream's documents may be fetched: only those of configured origins.

A document never decides where its files come from. Each URL becomes the key of a configured
origin and a path that is requested exactly as written; all other URLs are refused.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from service.core.origins import WebOrigin, parse_origin
from service.packages.proxy.documents import EntryDropped

URL_CHARS_MAX: Final = 2048

_KEY: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PORTS: Final = {"http": 80, "https": 443}

# The characters of RFC 3986's `pchar`, without those that need an escape in HTML, and without
# `;`, after which some servers expect parameters.
_PATH: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~!$()*+,=:@-]|%[0-9A-Fa-f]{2})+)+")
_DOT_SEGMENT: Final = re.compile(r"/\.{1,2}(?:/|$)")
_ESCAPE: Final = re.compile("%(..)")
_ESCAPED_REFUSED: Final = frozenset("/\\%.?#")
"""Characters whose escapes servers, proxies and clients interpret differently."""


class Location(NamedTuple):
    """Where a file is: the key of a configured origin, and upstream's path there, verbatim."""

    origin: str
    path: str
    fragment: str


class Origins:
    """The configured origins, by key.

    Keys are 1 to 32 of `a-z0-9-`; they are part of the URLs that clients store in lockfiles,
    so a key must not change. Origins are `scheme://host[:port]`. Raises ValueError otherwise.
    """

    def __init__(self, origins: Mapping[str, str]) -> None:
        self._keys: dict[WebOrigin, str] = {}
        self._prefixes: dict[str, str] = {}
        for key, origin in origins.items():
            self._add(key, origin)

    def _add(self, key: str, text: str) -> None:
        if not _KEY.fullmatch(key):
            raise ValueError(f"origin key {key!r} must be 1..32 characters of a-z, 0-9 and -")
        origin = parse_origin(text)
        self._keys[origin] = key
        self._prefixes[f"{origin}/"] = key
        if origin.scheme == "https" and origin.port == _PORTS["https"]:
            # Old documents have http URLs of hosts that have moved to https; we fetch over https.
            self._keys.setdefault(WebOrigin("http", origin.host, _PORTS["http"]), key)

    def locate(self, url: str, page_url: str) -> Location:
        """The location of the file at `url`, which may be relative to `page_url`.

        Raises EntryDropped for a URL that leaves the configured origins, has credentials or a
        query, or has a path that can be interpreted in more than one way.
        """
        if len(url) > URL_CHARS_MAX:
            raise EntryDropped("URL is too long")
        location = self._written_out(url) or self._resolved(url, page_url)
        if not _PATH.fullmatch(location.path) or _DOT_SEGMENT.search(location.path):
            raise EntryDropped("URL path is unsafe")
        if "%" in location.path and not _are_plain(_ESCAPE.findall(location.path)):
            raise EntryDropped("URL path is unsafe")
        return location

    def _written_out(self, url: str) -> Location | None:
        """The location of a URL that begins with a configured origin, as most do; else None."""
        for prefix, key in self._prefixes.items():
            if url.startswith(prefix):
                path, _, fragment = url[len(prefix) - 1 :].partition("#")
                return Location(key, path, fragment)
        return None

    def _resolved(self, url: str, page_url: str) -> Location:
        # `urlsplit` silently removes some control characters, which clients treat differently.
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise EntryDropped("URL has characters that URLs must not have")
        try:
            parts = urlsplit(urljoin(page_url, url))
            origin = _origin(parts)
        except ValueError as error:
            raise EntryDropped("URL is malformed") from error
        if "@" in parts.netloc:
            raise EntryDropped("URL has credentials")
        key = self._keys.get(origin)
        if key is None:
            raise EntryDropped("origin is not configured")
        if parts.query:
            raise EntryDropped("URL has a query")
        return Location(key, parts.path, parts.fragment)


def _origin(parts: SplitResult) -> WebOrigin:
    """The origin of a URL of any scheme. Raises ValueError for an invalid port."""
    port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    return WebOrigin(parts.scheme, parts.hostname or "", port)


def _are_plain(escapes: list[str]) -> bool:
    """True if the escaped octets are printable ASCII, and none of them a separator."""
    characters = [chr(int(escape, 16)) for escape in escapes]
    return all(" " <= c <= "~" and c not in _ESCAPED_REFUSED for c in characters)


def bounded_url(url: str | None) -> str | None:
    """`url` if it is an absolute HTTP URL of at most URL_CHARS_MAX characters, else None.

    It is passed on to clients, and fetched only from origins that are configured.
    """
    is_url = url is not None and url.startswith(("https://", "http://"))
    return url if is_url and len(url or "") <= URL_CHARS_MAX else None
