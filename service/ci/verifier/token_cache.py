"""A cache of verified tokens' claims by the hash of the token, for a limited time.

A job sends the same token with each request. The cache saves only the signature verification:
bindings and times are checked every time.
"""

import hashlib
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.ci.issuers.issuers import Issuer
from service.ci.providers import CONDITION_CLAIMS
from service.ci.verifier.claims import Claims

KEPT_FOR: Final = timedelta(minutes=10)
KEPT_BYTES_MAX: Final = 32 * 2**20
_MEMBER_BYTES: Final = 128
_REGISTERED: Final = ("iss", "aud", "sub", "exp", "iat", "nbf")


class VerifiedTokenCache:
    """The claims of verified tokens; stores neither tokens nor unused claims."""

    def __init__(self) -> None:
        self._kept = ByteCache(KEPT_BYTES_MAX)

    def find(self, compact: str, now: datetime) -> Claims | None:
        """The claims of the token, if its signature was verified less than KEPT_FOR ago."""
        _, entry = self._kept.find(_hash(compact))
        # A clock that was set back makes the age negative: then the signature is verified again.
        if entry is None or not timedelta(0) <= now - entry[1] < KEPT_FOR:
            return None
        return entry[0]  # type: ignore[no-any-return]

    def keep(self, compact: str, claims: Claims, issuer: Issuer, now: datetime) -> None:
        """Store the claims that rules and audit rows use of a token with a valid signature."""
        used = _used_claims(issuer)
        members = {name: value for name, value in claims.members.items() if name in used}
        # The values are parts of the token, so together they are no longer than it.
        size = ENTRY_BYTES + len(compact) + _MEMBER_BYTES * len(members)
        self._kept.keep(_hash(compact), (Claims(members), now), size)


def _hash(compact: str) -> bytes:
    # Of the token with its signature: one with the same claims and another signature is not found.
    return hashlib.sha256(compact.encode()).digest()


@cache
def _used_claims(issuer: Issuer) -> frozenset[str]:
    """The names of the claims that rules and audit rows use."""
    provider_claims = (
        issuer.repository_id_claim,
        issuer.event_name_claim,
        issuer.run_id_claim,
        issuer.token_id_claim,
        issuer.owner_claim,
        *CONDITION_CLAIMS[issuer.provider],
    )
    return frozenset((*_REGISTERED, *(name for name in provider_claims if name is not None)))
