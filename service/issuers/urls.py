"""Which addresses an issuer and its keys may have: https, or this very machine."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import SplitResult, urlsplit

# White space and control characters vanish from URLs in some readers, and letters beyond ASCII
# have several spellings.
_VISIBLE_ASCII: Final = re.compile(r"[!-~]+")


def issuer_url_fault(url: str) -> str | None:
    """What is wrong with `url` as an issuer's, or None (OpenID Connect Discovery, 3)."""
    if "?" in url:
        return "has a query"
    return key_url_fault(url)


def key_url_fault(url: str, *, is_loopback_allowed: bool = True) -> str | None:
    """What is wrong with `url` as one that keys are fetched from, or None.

    Plain http is for this machine alone, and only where `is_loopback_allowed`.
    """
    if not _VISIBLE_ASCII.fullmatch(url):
        return "is empty, or has a character that no URL has"
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port out of range is found when it is asked for
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
    """True for http:// to this very machine, as tests and trials use."""
    return _is_plain_loopback(urlsplit(url))


def _is_plain_loopback(parts: SplitResult) -> bool:
    return parts.scheme == "http" and _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return IPv6Address(host).is_loopback if ":" in host else IPv4Address(host).is_loopback
    except AddressValueError:
        return False
