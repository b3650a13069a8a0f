"""A cache that is bounded in bytes: least recently used goes first once there is no more room.

Safe to use from several threads.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final

ENTRY_BYTES: Final = 512
"""What an entry takes besides its value, roughly: small values must not be free."""


class ByteCache:
    """Values by key, together at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._entries

    def find(self, key: Hashable) -> tuple[bool, Any]:
        """Whether `key` is there, and its value (else None)."""
        with self._lock:
            if key not in self._entries:
                return False, None
            self._entries.move_to_end(key)
            return True, self._entries[key][0]

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401 - of any type
        """The value of `key`; if it is not there `make` gives it, with its size in bytes."""
        is_known, value = self.find(key)
        if not is_known:
            value, size = make()  # unlocked: two threads may make the same, and none waits
            self.keep(key, value, size)
        return value

    def keep(self, key: Hashable, value: object, size: int) -> None:
        """Hold `value`, of `size` bytes, in place of what was there, until there is no room."""
        if size > self.bytes_max:
            return
        with self._lock:
            _, freed = self._entries.pop(key, (None, 0))
            self._entries[key] = (value, size)
            self.size += size - freed
            while self.size > self.bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self.size -= freed
