"""Reads the lines of a stream of bytes, in bounded memory."""

import codecs
from collections.abc import Iterator
from typing import Final, Protocol

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_BLOCK_BYTES: Final = 1024 * 1024


class LineTooLong(ValueError):
    """A line is too long to be held in memory."""


class Stream(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Lines:
    """The lines of `stream`, without their line feeds and without a byte order mark.

    `number` is that of the last line returned, from 1. `is_torn` means that this is the last line
    and lacks a line feed, so that it may be cut off. Raises LineTooLong.
    """

    def __init__(self, stream: Stream, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._stream = stream
        self._bytes_max = bytes_max
        self.number = 0
        self.is_torn = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines():
            self.number += 1
            yield line.removeprefix(codecs.BOM_UTF8) if self.number == 1 else line

    def _lines(self) -> Iterator[bytes]:
        rest = bytearray()
        while block := self._stream.read(_BLOCK_BYTES):
            first, *others = block.split(b"\n")
            rest += first
            # Checked for each block: a line without an end must not fill the memory.
            if len(rest) > self._bytes_max:
                raise LineTooLong(f"the line is longer than {self._bytes_max} bytes")
            if others:
                yield bytes(rest)
                yield from others[:-1]
                rest = bytearray(others[-1])
        if rest:
            self.is_torn = True
            yield bytes(rest)
