"""Compresses a stream of bytes piece by piece, in constant memory."""

import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import pyarrow as pa

_GZIP_LEVEL: Final = 4
"""Measured on exported rows: 260 MB/s at a twelfth of the size; level 6 is a tenth smaller and
takes twice as long."""

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""Zlib's way to ask for a gzip header and trailer (RFC 1952)."""


class Compression(StrEnum):
    """A compression; the values are the names of HTTP's content codings."""

    GZIP = "gzip"
    ZSTD = "zstd"


class Compressor:
    """Compresses one stream; this one leaves it as it is."""

    def add(self, content: bytes) -> bytes:
        """The compressed `content`, flushed: everything added so far can be decoded."""
        return content

    def finish(self) -> bytes:
        """The end of the stream; without it, readers see that the stream broke off."""
        return b""


def compressor(compression: Compression | None) -> Compressor:
    """A new stream of this compression; None leaves the bytes unchanged."""
    return _COMPRESSORS[compression]()


def compressed(content: bytes, compression: Compression | None) -> bytes:
    """`content` as a whole stream."""
    stream = compressor(compression)
    return stream.add(content) + stream.finish()


class _Gzip(Compressor):
    """RFC 1952, without a time stamp: the same rows make the same bytes."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def add(self, content: bytes) -> bytes:
        return self._stream.compress(content) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Zstd(Compressor):
    """RFC 8878, one frame."""

    def __init__(self) -> None:
        self._made = ByteSink()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._made, mode="w"), "zstd")

    def add(self, content: bytes) -> bytes:
        self._stream.write(content)
        self._stream.flush()
        return self._made.drain()

    def finish(self) -> bytes:
        self._stream.close()
        return self._made.drain()


class ByteSink:
    """A file object that collects what is written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, content: bytes) -> int:
        """Keep a copy, because the writer may reuse its buffer."""
        self._written.append(bytes(content))
        return len(content)

    def drain(self) -> bytes:
        """Everything that was written since the last call."""
        written = b"".join(self._written)
        self._written.clear()
        return written

    def flush(self) -> None:
        """Do nothing: writes are not buffered elsewhere."""

    def close(self) -> None:
        """Do nothing: the contents stay until they are drained."""


_COMPRESSORS: Final[dict[Compression | None, Callable[[], Compressor]]] = {
    None: Compressor,
    Compression.GZIP: _Gzip,
    Compression.ZSTD: _Zstd,
}
