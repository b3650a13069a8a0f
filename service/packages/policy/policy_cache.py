"""The policies of all organisations, from memory for as long as nothing changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.ecosystems import Ecosystem
from service.core.single_flight import SingleFlight
from service.core.threads import in_thread
from service.packages.policy.advisories import PackageAdvisories
from service.packages.policy.document import decode_document
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import NO_POLICY, InForce
from service.packages.policy.repository import (
    decode_advisories,
    find_in_force,
    load_advisories,
    load_document,
)
from service.store.store import Store
from service.store.tables import Organisation
from service.store.transaction import Transaction

KEPT_BYTES_MAX: Final = 32 * 2**20
_STORED_FACTOR: Final = 64
"""Upper bound of memory per stored byte: a short version becomes a large object."""

AT_ONCE_BYTES: Final = 4096
"""What is stored of a policy or of advisories is compiled in the event loop up to this size, which
takes 10 ms at most; longer ones in a thread."""

_Policy = tuple[CompiledPolicy, int]
"""A policy, and how many bytes are stored of it."""

_Result = TypeVar("_Result")


class PolicyCache:
    """What each organisation's policy says about each package.

    After a commit by any process, one statement tells whether a policy or the blocklist changed.
    So a rule saved in one worker holds for the next request in every worker, and the audit rows
    that are committed all the time cost no more than that statement.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._packages = ByteCache(KEPT_BYTES_MAX)
        self._policies = ByteCache(KEPT_BYTES_MAX)
        self._loads = SingleFlight[PackagePolicy]()

    async def of(self, org: Organisation, ecosystem: Ecosystem, name: str) -> PackagePolicy:
        """The policy of `org` on the package `name` (canonical), as of now or later."""
        in_force = await self._store.cached_at_once(
            ("policy", org.id), partial(find_in_force, tenant_id=org.id)
        )
        key = (org.id, in_force, ecosystem, name)
        is_known, entry = self._packages.find(key)
        if is_known:
            return entry  # type: ignore[no-any-return]
        return await self._loads.run(key, partial(self._load, org.id, ecosystem, name))

    async def current(self, org: Organisation) -> CompiledPolicy:
        """The whole policy of `org`, as of now or later."""

        def read(transaction: Transaction) -> tuple[int, _Policy | bytes | None]:
            revision = find_in_force(transaction, org.id).revision
            return revision, self._find(transaction, org.id, revision)

        policy, _ = await self._compiled(org.id, *await self._store.read_at_once(read))
        return policy

    def _find(
        self, transaction: Transaction, tenant_id: str, revision: int
    ) -> _Policy | bytes | None:
        """The policy, or what is stored of it."""
        is_known, policy = self._policies.find((tenant_id, revision))
        return policy if is_known else load_document(transaction, tenant_id, revision)

    async def _load(self, tenant_id: str, ecosystem: Ecosystem, name: str) -> PackagePolicy:
        def read(
            transaction: Transaction,
        ) -> tuple[InForce, _Policy | bytes | None, list[tuple[str, bytes]]]:
            # Read again: key and value of the cache must come from one snapshot.
            in_force = find_in_force(transaction, tenant_id)
            return (
                in_force,
                self._find(transaction, tenant_id, in_force.revision),
                load_advisories(transaction, in_force.generation, ecosystem, name),
            )

        in_force, found, advisories = await self._store.read_at_once(read)
        policy, policy_bytes = await self._compiled(tenant_id, in_force.revision, found)
        size = sum(len(spec) for _, spec in advisories)
        loaded = await _computed(
            policy_bytes + size, partial(_on, policy, ecosystem, name, advisories)
        )
        loaded = replace(loaded, in_force=in_force)
        self._packages.keep(
            (tenant_id, in_force, ecosystem, name),
            loaded,
            ENTRY_BYTES * (len(loaded.deny) + len(loaded.allow) + 1 + 2 * len(advisories))
            + _CUT_BYTES * (loaded.deny.cuts + loaded.allow.cuts)
            + _STORED_FACTOR * size,
        )
        return loaded

    async def _compiled(
        self, tenant_id: str, revision: int, found: _Policy | bytes | None
    ) -> _Policy:
        """The policy that `_find` found."""
        if found is None:
            return _NO_POLICY, 0
        if isinstance(found, tuple):
            return found
        document = found
        size = len(document)
        compiled = await _computed(size, lambda: CompiledPolicy(decode_document(document)))
        self._policies.keep(
            (tenant_id, revision), (compiled, size), ENTRY_BYTES + _STORED_FACTOR * size
        )
        return compiled, size


_NO_POLICY: Final = CompiledPolicy(NO_POLICY)
_CUT_BYTES: Final = 32
"""A bound in the merged form of ranges, which shares the bound itself with the rule."""


def _on(
    policy: CompiledPolicy,
    ecosystem: Ecosystem,
    name: str,
    advisories: Sequence[tuple[str, bytes]],
) -> PackagePolicy:
    return policy.on(ecosystem, name, PackageAdvisories(decode_advisories(ecosystem, advisories)))


async def _computed(size: int, work: Callable[[], _Result]) -> _Result:
    """The result of `work` on so many stored bytes."""
    return work() if size <= AT_ONCE_BYTES else await in_thread(work)
