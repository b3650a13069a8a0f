"""A request's id, source address and user agent; none of them needs authentication."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, cast

from quart import Request, g

from service.core.text_rules import printable

USER_AGENT_CHARS_MAX: Final = 300


def request_id() -> str:
    """The server's own id of the current request; a client cannot choose it."""
    return cast("str", g.request_id)


def source_ip(request: Request, trusted_proxies: tuple[str, ...]) -> str | None:
    """The client's address.

    `X-Forwarded-For` counts only as far as trusted proxies wrote it: read from its right end, the
    first address that is not a trusted proxy is the client. A header sent several times is one
    list (RFC 9110, 5.3): some proxies add their own line below the client's.
    """
    forwarded = ",".join(request.headers.getlist("x-forwarded-for"))
    hops = [hop.strip() for hop in forwarded.split(",") if hop.strip()]
    address = request.remote_addr
    while address is not None and hops and is_trusted(address, trusted_proxies):
        address = hops.pop()
    return address if _is_address(address) else None


def user_agent(request: Request) -> str | None:
    """The `User-Agent`, cut to USER_AGENT_CHARS_MAX characters, or None; unprintable: U+FFFD."""
    value = request.headers.get("user-agent", "")[:USER_AGENT_CHARS_MAX]
    return printable(value).strip() or None


@lru_cache(maxsize=1_024)
def _is_address(text: str | None) -> bool:
    try:
        ip_address(text or "")
    except ValueError:
        return False
    return True


def is_trusted(address: str, trusted_proxies: tuple[str, ...]) -> bool:
    """True if `address` is in one of the networks."""
    if not _is_address(address):
        return False
    peer = ip_address(address)
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped  # how a dual-stack listener reports an IPv4 peer
    return any(peer in ip_network(network, strict=False) for network in trusted_proxies)
