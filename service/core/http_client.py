"""The HTTP clients that the service calls other servers with, and which servers they trust."""

from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext
from typing import Final

import httpx2

NO_NETWORK: Final = httpx2.AsyncBaseTransport()
"""Fails for every request: for processes that make none, and need not load what it takes."""

_DEFAULT_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20)
"""As httpx2 has them."""


def outgoing_client(
    transport: httpx2.AsyncBaseTransport | None = None, limits: httpx2.Limits = _DEFAULT_LIMITS
) -> httpx2.AsyncClient:
    """A client with connections of its own; `transport` in place of the network.

    It stores no cookies: what one server sets must not be sent with another request.
    """
    return httpx2.AsyncClient(
        verify=client_tls() if transport is None else False,  # which a transport decides
        transport=transport,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        limits=limits,
    )


@cache
def client_tls() -> SSLContext:
    """The TLS settings of all HTTP clients, with `SSL_CERT_FILE` or `SSL_CERT_DIR` if set.

    One for the process: reading a hundred certificates takes 30 ms, and none of them changes.
    """
    return httpx2.create_ssl_context()
