"""Fetching an issuer's keys: discovery and JWK Set over HTTP, each step of it bounded.

The answers are believed as far as TLS vouches for their host, and no further: an issuer's server
cannot send this service to another host by a redirect, nor to this machine by its configuration.
"""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

import httpx

from analytics.model.strict_json import NotStrictJson, strict_object
from service.issuers.jwks import KeyFault, SigningKeys, parse_jwks
from service.issuers.urls import is_plain_loopback, key_url_fault

FETCH_S: Final = 5.0
"""How long it may all take, discovery and redirects included."""

DOCUMENT_BYTES_MAX: Final = 100 * 1024
REDIRECTS_MAX: Final = 3
_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
# A packed answer could be small on the wire and large in memory.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


class KeyOwner(Protocol):
    """Whoever publishes keys: a CI issuer, or one whose id tokens people sign in with.

    Without `jwks_uri` the keys are where the configuration under `url` says.
    """

    @property
    def name(self) -> str:
        """What logs and metrics call it."""

    @property
    def url(self) -> str:
        """The `iss` of its tokens."""

    @property
    def jwks_uri(self) -> str | None:
        """Where its keys are, if that is known."""

    @property
    def algorithms(self) -> Collection[str]:
        """What its tokens may be signed with."""


async def fetch_keys(issuer: KeyOwner, http: httpx.AsyncClient) -> SigningKeys:
    """The keys `issuer` publishes now; at least one of them may verify. Raises KeyFault."""
    try:
        # Around everything: a server that drips keeps to each timeout of a single read.
        async with asyncio.timeout(FETCH_S):
            jwks_uri = issuer.jwks_uri or await _discover(issuer, http)
            return parse_jwks(await _document(jwks_uri, http), issuer.algorithms)
    except TimeoutError as error:
        raise KeyFault(f"not all there within {FETCH_S:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise KeyFault(f"{type(error).__name__}: {error}") from error


async def _discover(issuer: KeyOwner, http: httpx.AsyncClient) -> str:
    """Where the keys are (OpenID Connect Discovery, 4)."""
    raw = await _document(issuer.url.removesuffix("/") + _DISCOVERY_PATH, http)
    try:
        configuration = strict_object(raw)
    except NotStrictJson as error:
        raise KeyFault(f"the configuration is {error}") from error
    if configuration.get("issuer") != issuer.url:
        raise KeyFault(f"the configuration is that of {configuration.get('issuer')!r}")
    jwks_uri = configuration.get("jwks_uri")
    if not isinstance(jwks_uri, str):
        raise KeyFault("the configuration has no jwks_uri")
    # Else it could point a service that has the network's trust at what listens beside it.
    if fault := key_url_fault(jwks_uri, is_loopback_allowed=is_plain_loopback(issuer.url)):
        raise KeyFault(f"the jwks_uri {jwks_uri!r} {fault}")
    return jwks_uri


async def _document(url: str, http: httpx.AsyncClient) -> bytes:
    """What is at `url`, or where that redirects to."""
    for _ in range(REDIRECTS_MAX + 1):
        async with http.stream(
            "GET", url, headers=_HEADERS, follow_redirects=False, timeout=FETCH_S
        ) as response:
            if response.next_request is None:
                return await _body(response)
            url = _redirect_target(response.request.url, response.next_request.url)
    raise KeyFault(f"redirected more than {REDIRECTS_MAX} times")


def _redirect_target(here: httpx.URL, there: httpx.URL) -> str:
    same_place = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    if not same_place or there.userinfo:
        raise KeyFault(f"redirected from {here.host} to another place: {there.host}")
    return str(there)


async def _body(response: httpx.Response) -> bytes:
    if response.status_code != httpx.codes.OK:
        raise KeyFault(f"{response.request.url.path} answered {response.status_code}")
    coding = response.headers.get("content-encoding", "identity")
    if coding != "identity":
        raise KeyFault(f"{response.request.url.path} answered in the coding {coding!r}")
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > DOCUMENT_BYTES_MAX:
            raise KeyFault(f"{response.request.url.path} is over {DOCUMENT_BYTES_MAX} bytes")
    return bytes(body)
