"""The URLs that issuers and their keys may have: https, or http on this machine."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from service.core.origins import is_loopback

# Some parsers drop white space and control characters from URLs, and non-ASCII letters can be
# spelled in several ways.
_VISIBLE_ASCII: Final = re.compile(r"[!-~]+")


def issuer_url_fault(url: str) -> str | None:
    """The fault of `url` as an issuer URL, or None (OpenID Connect Discovery, 3)."""
    if "?" in url:
        return "has a query"
    return key_url_fault(url)


def key_url_fault(url: str, *, is_loopback_allowed: bool = True) -> str | None:
    """The fault of `url` as a location of keys, or None.

    Plain http is allowed for this machine only, and only if `is_loopback_allowed`.
    """
    if not _VISIBLE_ASCII.fullmatch(url):
        return "is empty, or has a character that no URL has"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is out of range
    except ValueError as error:
        return f"is not a URL: {error}"
    if "#" in url:
        return "has a fragment"
    if "@" in parts.netloc:
        return "has a user's name or password"
    if not parts.hostname:
        return "names no host"
    if parts.scheme == "https" or (is_loopback_allowed and _is_plain_loopback(parts)):
        return None
    return "must be https (http only on this machine)"


def is_plain_loopback(url: str) -> bool:
    """True for http:// URLs of this machine, as used in tests and trials."""
    return _is_plain_loopback(urlsplit(url))


def _is_plain_loopback(parts: SplitResult) -> bool:
    return parts.scheme == "http" and is_loopback(parts.hostname or "")
