"""What was read of the database, for as long as nobody commits anything to it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from analytics.cache.lru import ByteCache
from service.store.connection import CommitWatcher, Version

KEPT_BYTES_MAX: Final = 32 * 2**20

_Found = TypeVar("_Found")


class CommitCache:
    """Answers from memory while the database stands still, for every process that writes to it.

    Between requests it mostly does; and to ask whether it did costs one look, where to read who
    calls, which organisation and which rows there are costs a dozen statements. After a commit all
    ask at once: what several ask for is read once.
    """

    def __init__(self, watch: CommitWatcher | None) -> None:
        self._watch = watch
        self._as_of: Version | None = None
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._coming: dict[Hashable, asyncio.Task[Any]] = {}
        """What is being read since the last commit."""

    async def get(
        self,
        key: Hashable,
        load: Callable[[], Awaitable[_Found]],
        size_of: Callable[[_Found], int],
    ) -> _Found:
        """What `load` finds, as of now or later. What it raises is raised, and not kept.

        `key` and the database alone may decide what that is, and nobody may change it.
        """
        version = None if self._watch is None else self._watch.version()
        if version is None:
            return await load()
        if version != self._as_of:
            self._as_of, self._kept, self._coming = version, ByteCache(KEPT_BYTES_MAX), {}
        is_known, value = self._kept.find(key)
        found: _Found = value if is_known else await self._read_once(key, load, size_of)
        return found

    async def _read_once(
        self,
        key: Hashable,
        load: Callable[[], Awaitable[_Found]],
        size_of: Callable[[_Found], int],
    ) -> _Found:
        # These, whatever becomes of them: what is read here is of this version or a later one.
        kept, coming = self._kept, self._coming

        async def read() -> _Found:
            found = await load()
            kept.keep(key, found, size_of(found))
            return found

        def end(reading: asyncio.Task[_Found]) -> None:
            del coming[key]
            if not reading.cancelled():
                reading.exception()  # whoever wanted to know of it may be gone

        if key not in coming:
            # A task of its own: who came first may leave, and others wait for the same.
            coming[key] = asyncio.create_task(read())
            coming[key].add_done_callback(end)
        found: _Found = await asyncio.shield(coming[key])
        return found
