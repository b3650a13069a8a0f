"""Which servers this process trusts: those that the system's certificates vouch for."""

from functools import cache
from ssl import SSLContext

import httpx2


@cache
def client_tls() -> SSLContext:
    """The TLS settings of all HTTP clients, with `SSL_CERT_FILE` or `SSL_CERT_DIR` if set.

    One for the process: reading a hundred certificates takes 30 ms, and none of them changes.
    """
    return httpx2.create_ssl_context()
