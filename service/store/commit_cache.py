"""A cache of query results that is valid until the next commit to the database."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from analytics.cache.lru import ByteCache
from service.core.single_flight import SingleFlight
from service.store.engines import CommitWatch

KEPT_BYTES_MAX: Final = 32 * 2**20
LINE_BYTES: Final = 2_048
"""Approximate memory of a catalog line, of a batch without its data, and of most other results."""

_Value = TypeVar("_Value")


class CommitCache:
    """Query results, dropped as soon as any process commits to the database.

    Checking for a commit costs one look at shared memory; loading the caller, the organisation and
    the row set costs a dozen statements. Concurrent requests for one key share one load.
    """

    def __init__(self, watch: CommitWatch) -> None:
        self._watch = watch
        self._as_of: Hashable | None = None
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._loads = SingleFlight[Any]()
        """Those in progress since the last commit."""

    async def get(
        self,
        key: Hashable,
        load: Callable[[], Awaitable[_Value]],
        size_of: Callable[[_Value], int] = lambda _: LINE_BYTES,
    ) -> _Value:
        """The result of `load`, as of now or later. Its exceptions propagate and are not cached.

        The result may depend on `key` and the database only. Callers must not change it.
        """
        version = await self._watch.version()
        if version is None:
            return await load()
        if version != self._as_of:
            # New objects, not cleared ones: a load that is under way keeps its result in those that
            # it began with, as it may be older than this version.
            self._as_of, self._kept, self._loads = (
                version,
                ByteCache(KEPT_BYTES_MAX),
                SingleFlight(),
            )
        # Bound before the load: its result is of this version or a later one.
        kept = self._kept
        is_known, found = kept.find(key)
        if not is_known:

            async def read() -> _Value:
                value = await load()
                kept.keep(key, value, size_of(value))
                return value

            found = await self._loads.run(key, read)
        result: _Value = found
        return result

    def advance(self, before: Hashable, after: Hashable) -> None:
        """Keep everything over the only commit between versions `before` and `after`.

        It must have changed nothing that any result here depends on.
        """
        if self._as_of == before:
            self._as_of = after
