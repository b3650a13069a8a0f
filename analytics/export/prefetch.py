"""Making the next item of a stream while the one before is used."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")


def prefetch(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """`items`, none of which is None; a thread prepares the next one, and none beyond it.

    What `items` raises is raised in the place of the item. Closing this waits for the item being
    prepared and ends the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
            del item  # not to be held while the next one is waited for
