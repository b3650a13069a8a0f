"""What a full cache drops first: no owner's many files may empty it of the few of another."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Final, Protocol, TypeVar

IDLE_NS: Final = 7 * 24 * 3600 * 10**9
"""A file that was not used for so long has no share: its owner may have gone."""


class Kept(Protocol):
    """A file in a cache."""

    @property
    def owner(self) -> str:
        """Whose share it counts for."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def used_ns(self) -> int:
        """When it was last used, in nanoseconds since 1970."""


_File = TypeVar("_File", bound=Kept)


def drop_order(files: Iterable[_File], now_ns: int) -> Iterator[_File]:
    """All `files`, in the order in which a full cache drops them.

    First those that were not used for IDLE_NS. Then always one of the owner who holds most; of each
    owner's, the least recently used first.
    """
    in_use = defaultdict[str, list[_File]](list)
    held = Counter[str]()
    for file in sorted(files, key=attrgetter("used_ns")):
        if now_ns - file.used_ns > IDLE_NS:
            yield file
        else:
            in_use[file.owner].append(file)
            held[file.owner] += file.size
    most_first = [(-size, owner, iter(in_use[owner])) for owner, size in held.items()]
    heapify(most_first)
    while most_first:
        size, owner, oldest_first = most_first[0]
        file_or_none = next(oldest_first, None)
        if file_or_none is None:
            heappop(most_first)
        else:
            yield file_or_none
            heapreplace(most_first, (size + file_or_none.size, owner, oldest_first))
