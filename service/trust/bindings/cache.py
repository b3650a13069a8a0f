"""In-memory cache of each organisation's active bindings, loaded once per trust revision."""

from collections.abc import Sequence
from functools import partial
from sys import getsizeof
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.ci.verifier.candidates import BindingTerms, Candidates, candidates_of
from service.core.single_flight import SingleFlight
from service.core.threads import in_thread
from service.store.organisations import get_org_by_id
from service.store.store import Store
from service.store.tables import Organisation
from service.trust.bindings.repository import list_active

CACHE_BYTES_MAX: Final = 128 * 2**20
_CANDIDATE_BYTES: Final = 768
"""Approximate memory of a candidate without its subject and events."""


class BindingCache:
    """Candidates by organisation and trust revision.

    Every request loads its organisation anyway, and with it the current revision. So a binding
    revoked in any process is gone for the next request in every process, without another query.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache = ByteCache(CACHE_BYTES_MAX)
        self._loads = SingleFlight[Candidates]()

    async def candidates(self, org: Organisation) -> Candidates:
        """The active bindings of `org`, at least as recent as `org`."""
        key = (org.id, org.trust_revision)
        is_known, candidates = self._cache.find(key)
        if is_known:
            return candidates  # type: ignore[no-any-return]
        return await self._loads.run(key, partial(self._load, org.id))

    async def _load(self, tenant_id: str) -> Candidates:
        async with self._store.read() as session:
            # One snapshot: kept under a newer revision than its own, a revoked binding would stay
            # trusted.
            org = await get_org_by_id(session, tenant_id)
            active = await list_active(session, tenant_id)
        candidates, size = await in_thread(_prepared, active)
        self._cache.keep((tenant_id, org.trust_revision), candidates, size)
        return candidates


def _prepared(active: Sequence[BindingTerms]) -> tuple[Candidates, int]:
    """The candidates of the `active` bindings, and their memory: for 10,000 it takes 40 ms."""
    candidates = candidates_of(active)
    return candidates, ENTRY_BYTES + bytes_of(candidates)


def bytes_of(candidates: Candidates) -> int:
    """Upper bound of the memory of `candidates`; shared objects are counted repeatedly."""
    return sum(
        _CANDIDATE_BYTES
        + getsizeof(sub)
        + sum(map(_bytes_of_set, candidate.event_sets))
        + sum(getsizeof(pair) + sum(map(getsizeof, pair)) for pair in candidate.conditions)
        for (_, sub), same_subject in candidates.by_subject.items()
        for candidate in same_subject
    )


def _bytes_of_set(events: frozenset[str]) -> int:
    # Measured one by one: a non-ASCII name takes up to four times the memory of an ASCII one.
    return getsizeof(events) + sum(map(getsizeof, events))
