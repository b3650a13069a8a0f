"""The cached keys of the accepted issuers.

A valid token must not wait for its issuer, nor fail because the issuer is down. Invalid tokens must
not cause repeated requests to the issuer. So keys are renewed early in the background, kept through
outages, and never fetched twice at the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import httpx2
import structlog

from analytics.model.strict_json import NotStrictJson, strict_object
from service.ci.issuers.jwks import KeyFault, SigningKeys, parse_jwks
from service.ci.issuers.urls import is_plain_loopback, key_url_fault
from service.core.clock import Clock
from service.core.metrics import Metrics

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


FRESH: Final = timedelta(minutes=10)
"""The age of keys from which requests wait for newer ones."""

AHEAD: Final = timedelta(minutes=2)
"""Keys are renewed in the background this long before they reach the age FRESH."""

STALE_MAX: Final = timedelta(hours=24)
"""The maximum age of keys that are used because newer ones are unavailable."""

RETRY_AFTER: Final = timedelta(seconds=30)
"""How long after a failed fetch no other one is tried."""

UNKNOWN_KID_EVERY: Final = timedelta(minutes=1)
"""The minimum time between fetches because of an unknown `kid`."""

REASON_CHARS_MAX: Final = 200

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _IssuerKeys:
    """One issuer's keys and the state of their renewal. `keys.fault` is of the last attempt."""

    issuer: KeyOwner
    keys: SigningKeys = field(default_factory=SigningKeys)
    renewed_at: datetime | None = None
    failed_at: datetime | None = None
    unknown_kid_at: datetime | None = None
    was_asked_for: bool = False
    renewals_begun: int = 0
    renewal: asyncio.Task[None] | None = None

    def knows(self, kid: str) -> bool:
        """True if the issuer publishes a key with this id, even one that may not verify."""
        return kid in self.keys.by_kid or kid in self.keys.refused


KeysFor = Callable[[KeyOwner, str | None], Awaitable[SigningKeys]]
"""The keys of an issuer, as `KeySource.keys_for`."""


class KeySource:
    """The keys of all accepted issuers, fetched when needed and kept through outages."""

    def __init__(
        self,
        issuers: Mapping[str, KeyOwner],
        http: httpx2.AsyncClient,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._http = http
        self._clock = clock
        self._fetched_at = metrics.gauge(
            "countersign_issuer_keys_fetched_timestamp_seconds",
            "When an issuer's keys were last fetched, by the process with the oldest; 0 for never.",
            "issuer",
            mode="livemin",
        )
        self._fetches = metrics.counter(
            "countersign_issuer_key_fetches",
            "Times that fetching an issuer's keys began.",
            "issuer",
        )
        self._fetch_failures = metrics.counter(
            "countersign_issuer_key_fetch_failures",
            "Times that an issuer's keys could not be fetched.",
            "issuer",
        )
        self._held = {url: _IssuerKeys(issuer) for url, issuer in issuers.items()}
        self._is_closed = False
        # In a process that never fetches keys, 0 would hide when the others did.
        for held in self._held.values() if metrics.is_serving else ():
            self._fetched_at.labels(held.issuer.name).set(0)
            self._fetches.labels(held.issuer.name)
            self._fetch_failures.labels(held.issuer.name)

    async def keys_for(self, issuer: KeyOwner, unverified_kid: str | None) -> SigningKeys:
        """The keys of `issuer`, including `unverified_kid` if the issuer publishes it.

        Never raises: `fault` tells why keys are missing or could not be renewed. None as the `kid`
        means that no key could make the token valid; nothing is fetched.
        """
        held = self._held[issuer.url]
        if unverified_kid is None:
            return self._current(held)
        held.was_asked_for = True
        begun = held.renewals_begun
        if not self._is_fresh(held):
            await self._renew_old(held)
        # A renewal that began after this call has fetched any key that could have signed the token.
        if self._is_fresh(held) and held.renewals_begun == begun:
            await self._renew_for(held, unverified_kid)
        return self._current(held)

    def cached(self, issuer: KeyOwner) -> SigningKeys:
        """The currently cached keys of `issuer`, possibly none; fetches nothing."""
        return self._current(self._held[issuer.url])

    async def warm_up(self) -> None:
        """Fetch the keys of all issuers concurrently. Failures are only logged."""
        await self._renew_all(self._held.values())

    async def refresh_due(self) -> None:
        """Renew keys in use that will soon be too old, so that requests rarely wait.

        Takes no longer than one fetch may.
        """
        await self._renew_all(
            held
            for held in self._held.values()
            if held.was_asked_for
            and not self._is_younger(held.renewed_at, FRESH - AHEAD)
            and not self._has_just_failed(held)
        )

    async def close(self) -> None:
        """Cancel running renewals and start no more; waiting requests get the cached keys."""
        self._is_closed = True
        renewals = [held.renewal for held in self._held.values() if held.renewal is not None]
        for renewal in renewals:
            renewal.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)

    async def _renew_old(self, held: _IssuerKeys) -> None:
        """Renew the keys; wait unless usable old ones exist and the last attempt failed."""
        if self._has_just_failed(held):
            return
        renewal = self._begin(held)
        has_stale_keys = self._is_younger(held.renewed_at, STALE_MAX)
        if not (has_stale_keys and held.keys.fault is not None):
            await _wait_for(renewal)

    async def _renew_for(self, held: _IssuerKeys, unverified_kid: str) -> None:
        """Renew the keys and wait, if `unverified_kid` is not among the fresh ones."""
        if not held.knows(unverified_kid):
            await _wait_for(held.renewal)
        if held.knows(unverified_kid) or self._is_younger(held.unknown_kid_at, UNKNOWN_KID_EVERY):
            return
        # Noted before the fetch, even if it fails: made-up ids must not cause one fetch after the
        # other.
        held.unknown_kid_at = self._clock()
        await _wait_for(self._begin(held))

    async def _renew_all(self, several: Iterable[_IssuerKeys]) -> None:
        await asyncio.gather(*(_wait_for(self._begin(held)) for held in several))

    def _begin(self, held: _IssuerKeys) -> asyncio.Task[None] | None:
        """The running renewal or a new one, so that there is at most one per issuer."""
        if self._is_closed:
            return None
        if held.renewal is None:
            held.renewals_begun += 1
            held.renewal = asyncio.create_task(self._renew(held))
        return held.renewal

    async def _renew(self, held: _IssuerKeys) -> None:
        name = held.issuer.name
        self._fetches.labels(name).inc()
        try:
            held.keys = await fetch_keys(held.issuer, self._http)
            held.renewed_at, held.failed_at = self._clock(), None
            # Keys that no token asks for until the next renewal are not renewed in advance.
            held.was_asked_for = False
            self._fetched_at.labels(name).set(held.renewed_at.timestamp())
        except Exception as error:  # the cached keys stay in use after any failure
            reason = str(error) if isinstance(error, KeyFault) else repr(error)
            self._record_failure(held, reason[:REASON_CHARS_MAX])
        finally:
            held.renewal = None

    def _record_failure(self, held: _IssuerKeys, reason: str) -> None:
        held.keys = replace(held.keys, fault=reason)
        held.failed_at = self._clock()
        self._fetch_failures.labels(held.issuer.name).inc()
        _log.warning("issuer_keys_unavailable", issuer=held.issuer.name, reason=reason)

    def _current(self, held: _IssuerKeys) -> SigningKeys:
        # Not for longer: the issuer may have withdrawn a key that was stolen.
        if self._is_younger(held.renewed_at, STALE_MAX):
            return held.keys
        return SigningKeys(fault=held.keys.fault or "no keys fetched yet")

    def _is_fresh(self, held: _IssuerKeys) -> bool:
        return self._is_younger(held.renewed_at, FRESH)

    def _has_just_failed(self, held: _IssuerKeys) -> bool:
        return self._is_younger(held.failed_at, RETRY_AFTER)

    def _is_younger(self, at: datetime | None, limit: timedelta) -> bool:
        """True if `at` is less than `limit` away from now, also after the clock was set back."""
        return at is not None and abs(self._clock() - at) < limit


async def _wait_for(renewal: asyncio.Task[None] | None) -> None:
    """Wait until `renewal` ends. Cancelling this call does not cancel the renewal."""
    if renewal is not None:
        await asyncio.wait({renewal})
