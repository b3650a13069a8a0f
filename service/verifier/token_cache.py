"""Tokens whose signature has held before: their claims, by the token's hash, for a while.

A job sends the same token with each of its requests. What is kept spares the signature, and nothing
else: bindings and time are looked at every time.
"""

import hashlib
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.issuers.issuers import Issuer
from service.verifier.claims import Claims

KEPT_FOR: Final = timedelta(minutes=10)
KEPT_BYTES_MAX: Final = 32 * 2**20
_MEMBER_BYTES: Final = 128
_REGISTERED: Final = ("iss", "aud", "sub", "exp", "iat", "nbf")


class VerifiedTokenCache:
    """Claims of verified tokens. Neither tokens nor claims that nobody reads are kept."""

    def __init__(self) -> None:
        self._kept = ByteCache(KEPT_BYTES_MAX)

    def find(self, compact: str, now: datetime) -> Claims | None:
        """The claims of the token, if its signature held less than KEPT_FOR ago."""
        _, found = self._kept.find(_hash(compact))
        if found is None or not timedelta(0) <= now - found[1] < KEPT_FOR:
            return None
        return found[0]  # type: ignore[no-any-return]

    def keep(self, compact: str, claims: Claims, issuer: Issuer, now: datetime) -> None:
        """Remember that the token's signature held, and what of its claims is ever read."""
        read = _read_of(issuer)
        members = {name: said for name, said in claims.members.items() if name in read}
        # Every value is a part of the token, and so not longer in all.
        size = ENTRY_BYTES + len(compact) + _MEMBER_BYTES * len(members)
        self._kept.keep(_hash(compact), (Claims(members), now), size)


def _hash(compact: str) -> bytes:
    return hashlib.sha256(compact.encode()).digest()


@cache
def _read_of(issuer: Issuer) -> frozenset[str]:
    """The claims that rules and audit rows read."""
    own = (
        issuer.repository_id_claim,
        issuer.event_name_claim,
        issuer.run_id_claim,
        issuer.token_id_claim,
        issuer.owner_claim,
    )
    return frozenset((*_REGISTERED, *(name for name in own if name is not None)))
