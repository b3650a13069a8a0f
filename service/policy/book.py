"""The policies of all organisations, from memory for as long as nothing changes."""

import asyncio
from functools import partial
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.packages.ecosystems import Ecosystem
from service.policy.evaluation import PackagePolicy, package_policy
from service.policy.model import FirstParty, InstallPolicy
from service.policy.repository import (
    InForce,
    find_in_force,
    load_advisories,
    load_policy,
)
from service.store.store import Store
from service.store.tables import Organisation
from service.store.transaction import Transaction

KEPT_BYTES_MAX: Final = 32 * 2**20
_STORED_FACTOR: Final = 32
"""Upper bound of memory per stored byte: a short version becomes a large object."""

_Key = tuple[str, InForce, Ecosystem, str]


class PolicyBook:
    """What each organisation's policy says about each package.

    After a commit by any process, one statement tells whether a policy or the blocklist changed.
    So a rule saved in one worker holds for the next request in every worker, and the audit rows
    that are committed all the time cost no more than that statement.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._packages = ByteCache(KEPT_BYTES_MAX)
        self._policies = ByteCache(KEPT_BYTES_MAX)
        self._loading: dict[_Key, asyncio.Task[PackagePolicy]] = {}

    async def of(self, org: Organisation, ecosystem: Ecosystem, name: str) -> PackagePolicy:
        """The policy of `org` on the package `name` (canonical), as of now or later."""
        in_force = await self._store.cached_at_once(
            ("policy", org.id), partial(find_in_force, tenant_id=org.id)
        )
        key = (org.id, in_force, ecosystem, name)
        is_known, entry = self._packages.find(key)
        if is_known:
            return entry  # type: ignore[no-any-return]
        if key not in self._loading:
            self._loading[key] = asyncio.create_task(self._load(org.id, ecosystem, name))
            self._loading[key].add_done_callback(lambda _: self._loading.pop(key))
        # Concurrent requests share one load, and a cancelled request does not cancel it.
        return await asyncio.shield(self._loading[key])

    async def first_party(self, org: Organisation) -> tuple[FirstParty, ...]:
        """The packages of `org` that only its own registries provide, as of now or later."""

        def read(transaction: Transaction) -> InstallPolicy:
            revision = find_in_force(transaction, org.id).revision
            return self._policy(transaction, org.id, revision)

        return (await self._store.read_at_once(read)).first_party

    async def _load(self, tenant_id: str, ecosystem: Ecosystem, name: str) -> PackagePolicy:
        def read(transaction: Transaction) -> tuple[InForce, PackagePolicy, int]:
            # Read again: key and value of the cache must come from one snapshot.
            in_force = find_in_force(transaction, tenant_id)
            policy = self._policy(transaction, tenant_id, in_force.revision)
            advisories, size = load_advisories(transaction, in_force.generation, ecosystem, name)
            return in_force, package_policy(policy, advisories, ecosystem, name), size

        in_force, loaded, size = await self._store.read_at_once(read)
        rules = len(loaded.deny) + len(loaded.allow) + 1
        self._packages.keep(
            (tenant_id, in_force, ecosystem, name),
            loaded,
            ENTRY_BYTES * (rules + 2 * len(loaded.advisories)) + _STORED_FACTOR * size,
        )
        return loaded

    def _policy(self, transaction: Transaction, tenant_id: str, revision: int) -> InstallPolicy:
        def load() -> tuple[InstallPolicy, int]:
            loaded, size = load_policy(transaction, tenant_id, revision)
            return loaded, ENTRY_BYTES + _STORED_FACTOR * size

        policy: InstallPolicy = self._policies.get((tenant_id, revision), load)
        return policy
