"""The keys of the accepted issuers, kept: who waits for them, and when they are renewed.

A good token must not wait for its issuer, nor fail because the issuer is down; a bad one must not
make this service call the issuer again and again. So keys are renewed ahead of need in the
background, kept through an outage, and asked for at most once at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import httpx
import structlog

from service.clock import Clock
from service.issuers.jwks import KeyFault, SigningKeys
from service.issuers.key_fetch import KeyOwner, fetch_keys
from service.metrics import Metrics

FRESH: Final = timedelta(minutes=10)
"""How old keys may be before a request waits for newer ones."""

AHEAD: Final = timedelta(minutes=2)
"""How long before that they are renewed in the background."""

STALE_MAX: Final = timedelta(hours=24)
"""How old keys may be that serve because no newer ones can be had."""

RETRY_AFTER: Final = timedelta(seconds=30)
"""How long a failure is answered with before the issuer is asked again."""

UNKNOWN_KID_EVERY: Final = timedelta(minutes=1)
"""How often an issuer is asked because of a `kid` it has not published."""

REASON_CHARS_MAX: Final = 200

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    """What is known of one issuer's keys. `keys.fault` tells of the last attempt."""

    issuer: KeyOwner
    keys: SigningKeys = field(default_factory=SigningKeys)
    renewed_at: datetime | None = None
    failed_at: datetime | None = None
    unknown_kid_at: datetime | None = None
    was_asked_for: bool = False
    renewals_begun: int = 0
    renewal: asyncio.Task[None] | None = None

    def knows(self, kid: str) -> bool:
        """True if the issuer publishes such a key, be it one that may not verify."""
        return kid in self.keys.by_kid or kid in self.keys.refused


KeysFor = Callable[[KeyOwner, str | None], Awaitable[SigningKeys]]
"""The keys of an issuer, as `KeySource.keys_for`."""


class KeySource:
    """Every accepted issuer's keys, fetched when needed and kept through its outages."""

    def __init__(
        self,
        issuers: Mapping[str, KeyOwner],
        http: httpx.AsyncClient,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._http = http
        self._clock = clock
        self._metrics = metrics
        self._held = {url: _Held(issuer) for url, issuer in issuers.items()}
        self._is_closed = False
        for held in self._held.values():
            metrics.keeps_keys_of(held.issuer.name)

    async def keys_for(self, issuer: KeyOwner, unverified_kid: str | None) -> SigningKeys:
        """The keys of `issuer`, with the one called `unverified_kid` if it publishes such a key.

        Never raises: `fault` says why keys are missing or could not be renewed. None is the `kid`
        of a token that no key would make good; nothing is fetched for it.
        """
        held = self._held[issuer.url]
        if unverified_kid is None:
            return self._current(held)
        held.was_asked_for = True
        begun = held.renewals_begun
        if not self._is_fresh(held):
            await self._renew_old(held)
        # A renewal begun since then has seen whatever key the token was signed with.
        if self._is_fresh(held) and held.renewals_begun == begun:
            await self._renew_for(held, unverified_kid)
        return self._current(held)

    def cached(self, issuer: KeyOwner) -> SigningKeys:
        """The keys of `issuer` that are here now, be they none; nothing is fetched."""
        return self._current(self._held[issuer.url])

    async def warm_up(self) -> None:
        """Fetch the keys of every issuer, all at once. Failures are logged and no more."""
        await self._renew_all(self._held.values())

    async def refresh_due(self) -> None:
        """Renew keys that are in use and will be too old soon, so that requests hardly ever wait.

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
        """End what is under way and begin nothing more; whoever waits gets what is here."""
        self._is_closed = True
        renewals = [held.renewal for held in self._held.values() if held.renewal is not None]
        for renewal in renewals:
            renewal.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)

    async def _renew_old(self, held: _Held) -> None:
        """Newer keys, waited for unless the last attempt failed."""
        if self._has_just_failed(held):
            return
        renewal = self._begin(held)
        has_stale_keys = self._is_younger(held.renewed_at, STALE_MAX)
        if not (has_stale_keys and held.keys.fault is not None):
            await _end_of(renewal)

    async def _renew_for(self, held: _Held, unverified_kid: str) -> None:
        """Newer keys if `unverified_kid` is not among the fresh ones, waited for."""
        if not held.knows(unverified_kid):
            await _end_of(held.renewal)
        if held.knows(unverified_kid) or self._is_younger(held.unknown_kid_at, UNKNOWN_KID_EVERY):
            return
        held.unknown_kid_at = self._clock()
        await _end_of(self._begin(held))

    async def _renew_all(self, several: Iterable[_Held]) -> None:
        await asyncio.gather(*(_end_of(self._begin(held)) for held in several))

    def _begin(self, held: _Held) -> asyncio.Task[None] | None:
        """The renewal that is under way, else a new one: never two of one issuer."""
        if self._is_closed:
            return None
        if held.renewal is None:
            held.renewals_begun += 1
            held.renewal = asyncio.create_task(self._renew(held))
        return held.renewal

    async def _renew(self, held: _Held) -> None:
        name = held.issuer.name
        self._metrics.fetching_keys(name)
        try:
            held.keys = await fetch_keys(held.issuer, self._http)
            held.renewed_at, held.failed_at = self._clock(), None
            held.was_asked_for = False
            self._metrics.fetched_keys(name, held.renewed_at)
        except Exception as error:  # whatever it is, the keys that are here go on serving
            reason = str(error) if isinstance(error, KeyFault) else repr(error)
            self._note_failure(held, reason[:REASON_CHARS_MAX])
        finally:
            held.renewal = None

    def _note_failure(self, held: _Held, reason: str) -> None:
        held.keys = replace(held.keys, fault=reason)
        held.failed_at = self._clock()
        self._metrics.key_fetch_failed(held.issuer.name)
        _log.warning("issuer_keys_unavailable", issuer=held.issuer.name, reason=reason)

    def _current(self, held: _Held) -> SigningKeys:
        if self._is_younger(held.renewed_at, STALE_MAX):
            return held.keys
        return SigningKeys(fault=held.keys.fault or "no keys fetched yet")

    def _is_fresh(self, held: _Held) -> bool:
        return self._is_younger(held.renewed_at, FRESH)

    def _has_just_failed(self, held: _Held) -> bool:
        return self._is_younger(held.failed_at, RETRY_AFTER)

    def _is_younger(self, at: datetime | None, limit: timedelta) -> bool:
        """True if `at` is less than `limit` ago. A clock set back does not stretch that."""
        return at is not None and abs(self._clock() - at) < limit


async def _end_of(renewal: asyncio.Task[None] | None) -> None:
    """Return when `renewal` is over. Whoever stops waiting does not stop it for the others."""
    if renewal is not None:
        await asyncio.wait({renewal})
