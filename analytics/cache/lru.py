"""A thread-safe LRU cache bounded in bytes: `cachetools.LRUCache` with a lock and stated sizes."""

from collections.abc import Callable, Hashable
from operator import itemgetter
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache

ENTRY_BYTES: Final = 512
"""What an entry takes besides its value, roughly: small values must not be free."""

_ABSENT: Final = (None, 0)


class ByteCache:
    """Values by key, together at most `bytes_max` bytes. Safe to use from several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._entries = LRUCache[Hashable, tuple[Any, int]](bytes_max, getsizeof=itemgetter(1))
        self._lock = Lock()

    @property
    def bytes_max(self) -> int:
        """What its values may take together."""
        return int(self._entries.maxsize)

    @property
    def size(self) -> int:
        """The bytes that its values take, as their owners stated them."""
        return int(self._entries.currsize)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def find(self, key: Hashable) -> tuple[bool, Any]:
        """Whether `key` is there, and its value (else None)."""
        with self._lock:
            entry = self._entries.get(key, _ABSENT)
        return entry is not _ABSENT, entry[0]

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401 - of any type
        """The value of `key`; if it is not there `make` gives it, with its size in bytes."""
        is_known, value = self.find(key)
        if not is_known:
            value, size = make()  # unlocked: two threads may make the same, and none waits
            self.keep(key, value, size)
        return value

    def keep(self, key: Hashable, value: object, size: int) -> None:
        """Hold `value`, of `size` bytes, in place of a former one, until its room is needed."""
        with self._lock:
            # One that never fits is not kept: cachetools would raise ValueError.
            if size <= self._entries.maxsize:
                self._entries[key] = (value, size)
