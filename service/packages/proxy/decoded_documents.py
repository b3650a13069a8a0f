"""Decoded documents: the last used ones are kept, but a large one is decoded for each use.

Freeing the objects of a large document takes 30 ms, during which the thread holds the
interpreter's lock. So large documents are emptied entry by entry.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.packages.proxy.document_files import StoredDocument

DECODED_PER_ENCODED: Final = 4
"""Roughly the memory of a decoded document: one file is 200 bytes encoded, and 800 as objects."""

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


class DecodedDocuments(Generic[_Value]):
    """The values of stored documents. Safe to use from several threads."""

    def __init__(
        self,
        memory: ByteCache,
        decode: Callable[[bytes], _Value],
        release: Callable[[_Value], object],
    ) -> None:
        """`release` empties a value that is no longer used."""
        self._memory = memory
        self._decode = decode
        self._release = release

    def use(self, stored: StoredDocument, function: Callable[[_Value], _Result]) -> _Result:
        """The result of `function` on the document, of which it may keep single entries only."""
        is_known, value = self._memory.find(stored.version)
        if is_known:
            return function(value)
        value = self._decode(stored.encoded())
        size = ENTRY_BYTES + stored.encoded_bytes * DECODED_PER_ENCODED
        if size <= self._memory.bytes_max:
            self._memory.keep(stored.version, value, size)
            return function(value)
        try:
            return function(value)
        finally:
            # Never for a kept value: another thread may be reading it.
            self._release(value)

    def check(self, stored: StoredDocument) -> None:
        """Decode the document, and raise what that raises."""
        self.use(stored, lambda _: None)
