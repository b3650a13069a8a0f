"""Statements over many keys, a bounded number at a time."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

KEYS_MAX: Final = 500
"""Keys one statement names: databases bound how many values one may bind."""

_Key = TypeVar("_Key")


def in_chunks(keys: Sequence[_Key]) -> Iterator[Sequence[_Key]]:
    """`keys` in runs of at most KEYS_MAX."""
    for start in range(0, len(keys), KEYS_MAX):
        yield keys[start : start + KEYS_MAX]
