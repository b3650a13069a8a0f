"""A Bloom filter of the values of a column: 8 bits and 5 probes a value, which 2 % of others pass.

Bloom, "Space/time trade-offs in hash coding with allowable errors" (1970); the probes of a value
follow from one hash (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).
"""

import zlib
from collections.abc import Sequence
from typing import Final

_MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""Spreads a checksum over 64 bits: an odd number, 2**64 divided by the golden ratio."""
_LOW: Final = 2**32 - 1
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def encode_filter(values: Sequence[bytes]) -> bytes:
    """The filter of `values`, all of them different: a byte for each."""
    bits = 8 * len(values)
    is_set = bytearray(bits)
    for value in values:
        for place in _places(value, bits):
            is_set[place] = 1
    return int(b"0" + is_set[::-1].translate(_DIGITS), 2).to_bytes(len(values), "little")


def may_have(content: bytes, value: bytes) -> bool:
    """False only if `value` is not among those that `content` is the filter of."""
    bits = 8 * len(content)
    return all(content[place >> 3] >> (place & 7) & 1 for place in _places(value, bits))


def _places(value: bytes, bits: int) -> tuple[int, ...]:
    spread = zlib.crc32(value) * _MULTIPLIER
    probe, step = spread >> 32, spread & _LOW
    return (
        (probe & _LOW) * bits >> 32,
        (probe + step & _LOW) * bits >> 32,
        (probe + 2 * step & _LOW) * bits >> 32,
        (probe + 3 * step & _LOW) * bits >> 32,
        (probe + 4 * step & _LOW) * bits >> 32,
    )
