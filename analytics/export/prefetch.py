"""Prepares the next item of a stream while the previous one is in use."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")


def prefetch(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """`items`, none of which is None; a thread prepares the next item, but no further ones.

    An exception of `items` is raised in place of the item. Closing this waits for the item being
    prepared and ends the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
            del item  # not kept alive while waiting for the next one
