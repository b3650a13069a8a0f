"""Fetches an issuer's keys by discovery and JWK Set over HTTP, with limits on each step.

Answers are trusted only from the host that TLS authenticates. An issuer's server cannot send this
service to another host by a redirect, nor to the local machine by its configuration.
"""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

import httpx2

from analytics.model.strict_json import NotStrictJson, strict_object
from service.ci.issuers.jwks import KeyFault, SigningKeys, parse_jwks
from service.ci.issuers.urls import is_plain_loopback, key_url_fault

FETCH_S: Final = 5.0
"""Time limit for one fetch, including discovery and redirects."""

DOCUMENT_BYTES_MAX: Final = 100 * 1024
REDIRECTS_MAX: Final = 3
_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
# Compressed answers could be small on the wire and large in memory.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


class KeyOwner(Protocol):
    """A publisher of keys: a CI issuer or an identity provider for sign-in.

    Without `jwks_uri`, the key location is discovered from the configuration under `url`.
    """

    @property
    def name(self) -> str:
        """The name in logs and metrics."""

    @property
    def url(self) -> str:
        """The `iss` of its tokens."""

    @property
    def jwks_uri(self) -> str | None:
        """The location of its keys, if configured."""

    @property
    def algorithms(self) -> Collection[str]:
        """The algorithms accepted for its tokens."""


async def fetch_keys(issuer: KeyOwner, http: httpx2.AsyncClient) -> SigningKeys:
    """The keys that `issuer` currently publishes; at least one usable. Raises KeyFault."""
    try:
        # An overall limit: a slow server could stay below the timeout of each single read.
        async with asyncio.timeout(FETCH_S):
            jwks_uri = issuer.jwks_uri or await _discover(issuer, http)
            return parse_jwks(await _document(jwks_uri, http), issuer.algorithms)
    except TimeoutError as error:
        raise KeyFault(f"not all there within {FETCH_S:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise KeyFault(f"{type(error).__name__}: {error}") from error


async def _discover(issuer: KeyOwner, http: httpx2.AsyncClient) -> str:
    """The location of the keys (OpenID Connect Discovery, 4)."""
    raw = await _document(issuer.url.removesuffix("/") + _DISCOVERY_PATH, http)
    try:
        configuration = strict_object(raw)
    except NotStrictJson as error:
        raise KeyFault(f"the configuration is {error}") from error
    # Otherwise one tenant of a shared host could publish keys for another (Discovery, 4.3).
    if configuration.get("issuer") != issuer.url:
        raise KeyFault(f"the configuration is that of {configuration.get('issuer')!r}")
    jwks_uri = configuration.get("jwks_uri")
    if not isinstance(jwks_uri, str):
        raise KeyFault("the configuration has no jwks_uri")
    # Otherwise the issuer could direct requests to services inside this network.
    if fault := key_url_fault(jwks_uri, is_loopback_allowed=is_plain_loopback(issuer.url)):
        raise KeyFault(f"the jwks_uri {jwks_uri!r} {fault}")
    return jwks_uri


async def _document(url: str, http: httpx2.AsyncClient) -> bytes:
    """The document at `url`, following redirects within the same origin."""
    for _ in range(REDIRECTS_MAX + 1):
        async with http.stream(
            "GET", url, headers=_HEADERS, follow_redirects=False, timeout=FETCH_S
        ) as response:
            if response.next_request is None:
                return await _body(response)
            url = _redirect_target(response.request.url, response.next_request.url)
    raise KeyFault(f"redirected more than {REDIRECTS_MAX} times")


def _redirect_target(here: httpx2.URL, there: httpx2.URL) -> str:
    same_place = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    if not same_place or there.userinfo:
        raise KeyFault(f"redirected from {here.host} to another place: {there.host}")
    return str(there)


async def _body(response: httpx2.Response) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise KeyFault(f"{response.request.url.path} answered {response.status_code}")
    coding = response.headers.get("content-encoding", "identity")
    if coding != "identity":
        raise KeyFault(f"{response.request.url.path} answered in the coding {coding!r}")
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        # Counted as it arrives: a content-length may be missing or wrong.
        if len(body) > DOCUMENT_BYTES_MAX:
            raise KeyFault(f"{response.request.url.path} is over {DOCUMENT_BYTES_MAX} bytes")
    return bytes(body)
