"""What each organisation trusts, in memory: read from the database once for every change."""

import asyncio
from sys import getsizeof
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.bindings.repository import list_active
from service.orgs.repository import get_org_by_id
from service.store.store import Store
from service.store.tables import Organisation
from service.verifier.candidates import Candidates, candidates_of

KEPT_BYTES_MAX: Final = 128 * 2**20
_CANDIDATE_BYTES: Final = 768
"""What a candidate takes in memory besides its subject and events, roughly."""


class BindingCache:
    """The candidates of organisations, as of the revision that a request has just read.

    The request reads its organisation anyway, and the revision with it: so a binding that any
    process has revoked is gone for the next request of every process, and nothing more is asked.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._loading: dict[tuple[str, int], asyncio.Task[Candidates]] = {}

    async def candidates(self, org: Organisation) -> Candidates:
        """The active bindings of `org`, no older than `org` itself."""
        key = (org.id, org.trust_revision)
        is_known, found = self._kept.find(key)
        if is_known:
            return found  # type: ignore[no-any-return]
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load(org.id))
            self._loading[key].add_done_callback(lambda _: self._loading.pop(key))
        # Requests that come together wait for one reading, and none of them can cancel it.
        return await asyncio.shield(self._loading[key])

    async def _load(self, tenant_id: str) -> Candidates:
        async with self._store.read() as session:
            org = await get_org_by_id(session, tenant_id)
            active = await list_active(session, tenant_id)
        found = candidates_of(active)
        size = ENTRY_BYTES + bytes_of(found)
        self._kept.keep((tenant_id, org.trust_revision), found, size)
        return found


def bytes_of(candidates: Candidates) -> int:
    """What `candidates` take in memory; rather too much, where they share something."""
    return sum(
        _CANDIDATE_BYTES + getsizeof(sub) + sum(map(_bytes_of_set, candidate.event_sets))
        for (_, sub), several in candidates.by_subject.items()
        for candidate in several
    )


def _bytes_of_set(events: frozenset[str]) -> int:
    # Each by itself: a name beyond ASCII takes four times the room of one within.
    return getsizeof(events) + sum(map(getsizeof, events))
