"""Documents decoded: those used last are kept, a large one is decoded for each use.

To free the objects of a large document takes 30 ms, and the thread that does so holds the
interpreter's lock until the last one is gone. So large ones are emptied entry by entry.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.proxy.document_files import StoredDocument

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
        """`release` empties a value that is not used any more."""
        self._memory = memory
        self._decode = decode
        self._release = release

    def use(self, stored: StoredDocument, function: Callable[[_Value], _Result]) -> _Result:
        """What `function` makes of the document, of which it must keep nothing but entries."""
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
            self._release(value)

    def check(self, stored: StoredDocument) -> None:
        """Raise what decoding the document raises."""
        self.use(stored, lambda _: None)
