"""Exchanges a provider's code for an identity; no other module sends a client secret."""

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar

import httpx2
import msgspec
import structlog

from service.access.refusals import IDENTITY_NOT_PROVED, ProviderUnavailable, SignInRefused
from service.access.sign_in.flow import Flow
from service.access.sign_in.id_tokens import IdTokenFault, check_id_token, read_id_token
from service.access.sign_in.identity import Identity, identity_of
from service.access.sign_in.providers import Endpoints, IdTokenIssuer, Provider
from service.ci.issuers.key_source import KeySource
from service.ci.issuers.urls import is_plain_loopback, key_url_fault
from service.ci.verifier.signatures import unverified_kid
from service.core.clock import Clock

ANSWER_S: Final = 5.0
"""Time limit of a response, to its last byte."""

ANSWER_BYTES_MAX: Final = 100 * 1024
# A compressed response could be small on the wire and large in memory.
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}

_Answer = TypeVar("_Answer")


async def ask(
    http: httpx2.AsyncClient,
    kind: type[_Answer],
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    statuses: frozenset[int] = frozenset({200}),
) -> _Answer:
    """GET `url`, or POST `form` to it, and parse the JSON response as a `kind`.

    Raises ProviderUnavailable, also for a status that is not in `statuses`.
    """
    try:
        # For the whole request: a slow server could stay below the timeout of each single read.
        async with asyncio.timeout(ANSWER_S):
            status, body = await _fetch(http, url, form, {**_HEADERS, **(headers or {})})
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise unavailable(url, type(error).__name__) from error
    if status not in statuses:
        raise unavailable(url, f"answered {status}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unavailable(url, "did not answer in the JSON expected") from error


def unavailable(url: str, reason: str) -> ProviderUnavailable:
    """Log `reason`; return the refusal to raise."""
    _log.warning("identity_provider_unavailable", url=url, reason=reason)
    return ProviderUnavailable()


async def _fetch(
    http: httpx2.AsyncClient,
    url: str,
    form: Mapping[str, str] | None,
    headers: Mapping[str, str],
) -> tuple[int, bytes]:
    method = "GET" if form is None else "POST"
    async with http.stream(
        method, url, data=form, headers=headers, follow_redirects=False, timeout=ANSWER_S
    ) as response:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("packed", request=response.request)
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx2.DecodingError("too long", request=response.request)
        return response.status_code, bytes(body)


CONFIGURATION_FRESH: Final = timedelta(hours=1)
_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,64}", re.ASCII)
_TOKEN_STATUSES: Final = frozenset({200, 400, 401})

_log = structlog.get_logger(__name__)


class _Configuration(msgspec.Struct, frozen=True):
    """An issuer's published configuration (OpenID Connect Discovery, 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _Tokens(msgspec.Struct, frozen=True):
    """The response of a token endpoint; GitHub sends status 200 for errors, too."""

    access_token: str | None = None
    id_token: str | None = None
    error: str | None = None


class _Account(msgspec.Struct, frozen=True):
    """A GitHub account. A login can pass to another account, an id cannot."""

    id: int


class _Address(msgspec.Struct, frozen=True):
    """One of the addresses of a GitHub account."""

    email: str
    primary: bool
    verified: bool


class Exchange:
    """Exchanges codes of providers for identities, over `http`, with the keys in `keys`."""

    def __init__(self, http: httpx2.AsyncClient, keys: KeySource, clock: Clock) -> None:
        self._http = http
        self._keys = keys
        self._clock = clock
        self._discovered: dict[str, tuple[Endpoints, datetime]] = {}

    async def endpoints(self, provider: Provider) -> Endpoints:
        """The endpoints of `provider`. Raises ProviderUnavailable."""
        if provider.endpoints is not None or provider.id_tokens is None:
            assert provider.endpoints is not None  # noqa: S101 - as Provider promises
            return provider.endpoints
        issuer = provider.id_tokens
        cached = self._discovered.get(issuer.url)
        now = self._clock()
        if cached is not None and abs(now - cached[1]) < CONFIGURATION_FRESH:
            return cached[0]
        try:
            endpoints = await self._discover(issuer)
        except ProviderUnavailable:
            if cached is None:
                raise
            return cached[0]  # endpoints rarely change: better old ones than no sign-ins
        self._discovered[issuer.url] = endpoints, now
        return endpoints

    async def identify(
        self, provider: Provider, flow: Flow, code: str, redirect_uri: str
    ) -> Identity:
        """The identity that `code` proves. Raises ProviderUnavailable, IDENTITY_NOT_PROVED."""
        endpoints = await self.endpoints(provider)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": provider.client_id,
            "client_secret": provider.client_secret,
            "code_verifier": flow.verifier,
        }
        tokens = await ask(
            self._http, _Tokens, endpoints.token, form=form, statuses=_TOKEN_STATUSES
        )
        if tokens.error is not None:
            raise not_proved(provider, f"no token: {error_code(tokens.error)}")
        if provider.id_tokens is None:
            return await self._github_identity(provider, tokens)
        return await self._identity_in(provider, provider.id_tokens, flow, tokens)

    async def _identity_in(
        self, provider: Provider, issuer: IdTokenIssuer, flow: Flow, tokens: _Tokens
    ) -> Identity:
        if tokens.id_token is None:
            raise not_proved(provider, "no id token")
        try:
            token = read_id_token(tokens.id_token)
            kid = unverified_kid(token, issuer.algorithms)
            keys = await self._keys.keys_for(issuer, kid)
            if kid is not None and not keys.by_kid:
                raise unavailable(issuer.url, keys.fault or "no keys")
            subject, claims = check_id_token(
                token, issuer, provider.client_id, flow.nonce, keys, self._clock()
            )
        except IdTokenFault as fault:
            raise not_proved(provider, f"the id token: {fault}") from fault
        return identity_of(provider, subject, claims)

    async def _github_identity(self, provider: Provider, tokens: _Tokens) -> Identity:
        """The account of an access token; its primary address is trusted if GitHub verified it."""
        if tokens.access_token is None or not tokens.access_token.isascii():
            raise not_proved(provider, "no access token")
        headers = {"authorization": f"Bearer {tokens.access_token}"}
        url = provider.api_url
        account = await ask(self._http, _Account, f"{url}/user", headers=headers)
        addresses = await ask(
            self._http, list[_Address], f"{url}/user/emails?per_page=100", headers=headers
        )
        primary = next((address for address in addresses if address.primary), None)
        is_verified = primary is not None and primary.verified
        return Identity(
            provider.name,
            provider.namespace,
            str(account.id),
            None if primary is None else primary.email,
            is_verified=is_verified,
            is_of_domain=is_verified,
        )

    async def _discover(self, issuer: IdTokenIssuer) -> Endpoints:
        url = issuer.url + _DISCOVERY_PATH
        published = await ask(self._http, _Configuration, url)
        # Otherwise the client secret could be sent to another issuer's endpoint (Discovery, 4.3).
        if published.issuer != issuer.url:
            raise unavailable(url, "is the configuration of another issuer")
        for endpoint in (published.authorization_endpoint, published.token_endpoint):
            if key_url_fault(endpoint, is_loopback_allowed=is_plain_loopback(issuer.url)):
                raise unavailable(url, "names an endpoint that is not https")
        return Endpoints(published.authorization_endpoint, published.token_endpoint)


def not_proved(provider: Provider, reason: str) -> SignInRefused:
    """Log `reason`; return the refusal to raise."""
    _log.warning("sign_in_not_proved", provider=provider.name, reason=reason)
    return IDENTITY_NOT_PROVED()


def error_code(text: str) -> str:
    """A provider's error code if well-formed; arbitrary text must not reach the log."""
    return text if _ERROR_CODE.fullmatch(text) else "an unknown error"
