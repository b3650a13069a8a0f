"""The parts of Avro that manifests need: container files, and the encoding of single values."""

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_RAW_DEFLATE: Final = -15
_CODEC_KEY: Final = "avro.codec"
_CODEC: Final = b"deflate"
_SMALL: Final = [bytes([value]) for value in range(0x80)]


class DamagedAvro(ValueError):
    """The bytes are not a container file that is compressed like ours."""


def encoded_long(value: int) -> bytes:
    """`value` in zigzag code, seven bits a byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest < 0x80:
        return _SMALL[rest]
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encoded_bytes(value: bytes) -> bytes:
    """`value` after its length."""
    return encoded_long(len(value)) + value


def encoded_text(value: str) -> bytes:
    """`value` in UTF-8 after its length."""
    return encoded_bytes(value.encode())


class AvroReader:
    """Reads values one after the other."""

    __slots__ = ("_content", "position")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        """True if everything is read."""
        return self.position >= len(self._content)

    def since(self, start: int) -> bytes:
        """What was read from the position `start` on."""
        return self._content[start : self.position]

    def peek(self, size: int) -> bytes:
        """The next bytes, at most `size`, which stay to be read."""
        return self._content[self.position : self.position + size]

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises DamagedAvro."""
        start = self.position
        self.position = start + size
        if not start <= self.position <= len(self._content):
            raise DamagedAvro("the file ends too early")
        return self._content[start : self.position]

    def long(self) -> int:
        """The next integer."""
        content, position = self._content, self.position
        byte = content[position]
        position += 1
        value, shift = byte & 0x7F, 7
        while byte & 0x80:
            byte = content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self.position = position
        return (value >> 1) ^ -(value & 1)

    def bytes(self) -> bytes:
        """The next bytes, or the text in UTF-8."""
        return self.take(self.long())

    def optional_long(self) -> int | None:
        """The next integer, or null."""
        return self.long() if self.long() else None

    def skip_map(self, skip_value: Callable[[], object]) -> None:
        """Skip a map from integers, or null; `skip_value` reads one value of it."""

        def skip_item() -> None:
            self.long()
            skip_value()

        self.skip_list(skip_item)

    def skip_list(self, skip: Callable[[], object]) -> None:
        """Skip a list, or null; `skip` reads one item of it."""
        if not self.long():
            return
        while count := self.long():
            if count < 0:
                self.take(self.long())  # such a block says how long it is
                continue
            for _ in range(count):
                skip()


def write_container(metadata: Mapping[str, bytes], count: int, values: bytes) -> bytes:
    """A file with `count` encoded `values` in one compressed block."""
    header = {**metadata, _CODEC_KEY: _CODEC}
    sync = os.urandom(_SYNC_BYTES)
    compressor = zlib.compressobj(wbits=_RAW_DEFLATE)
    block = compressor.compress(values) + compressor.flush()
    return b"".join(
        (
            _MAGIC,
            encoded_long(len(header)),
            *(encoded_text(key) + encoded_bytes(value) for key, value in header.items()),
            encoded_long(0),
            sync,
            encoded_long(count),
            encoded_bytes(block),
            sync,
        )
    )


def read_container(content: bytes) -> tuple[dict[str, bytes], Iterator[tuple[int, AvroReader]]]:
    """The metadata of a file, and its blocks: the number of values, and their reader.

    Raises DamagedAvro, also while the blocks are read.
    """
    reader = AvroReader(content)
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise DamagedAvro("not an Avro file")
    metadata = {}
    while count := reader.long():
        for _ in range(count):
            key = reader.bytes().decode()
            metadata[key] = reader.bytes()
    if metadata.get(_CODEC_KEY) != _CODEC:
        raise DamagedAvro("compressed in another way")
    return metadata, _blocks(reader, reader.take(_SYNC_BYTES))


def _blocks(reader: AvroReader, sync: bytes) -> Iterator[tuple[int, AvroReader]]:
    while not reader.is_at_end:
        count = reader.long()
        block = zlib.decompress(reader.bytes(), wbits=_RAW_DEFLATE)
        if reader.take(_SYNC_BYTES) != sync:
            raise DamagedAvro("a block has another end than the file")
        yield count, AvroReader(block)
