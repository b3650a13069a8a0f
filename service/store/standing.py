"""What was read of the database, for as long as nobody commits anything to it."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

from analytics.byte_cache import ByteCache
from service.store.connection import Version, Watch

KEPT_BYTES_MAX: Final = 32 * 2**20

_Found = TypeVar("_Found")


class Standing:
    """Answers from memory while the database stands still, for every process that writes to it.

    Between requests it mostly does; and to ask whether it did costs one look, where to read who
    calls, which organisation and which rows there are costs a dozen statements.
    """

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self._as_of: Version | None = None
        self._kept = ByteCache(KEPT_BYTES_MAX)

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
            self._as_of, self._kept = version, ByteCache(KEPT_BYTES_MAX)
        # This one, whatever becomes of it: what is read below is of this version or a later one.
        kept = self._kept
        is_known, value = kept.find(key)
        found: _Found = value if is_known else await load()
        if not is_known:
            kept.keep(key, found, size_of(found))
        return found
