"""Builds the text of many rows at once: each row is a sequence of fragments, joined by one gather.

A table of audit rows says few different things many times over. So what a value looks like is
worked out once for each different value, and a row is then no more than a few indices.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES_MAX: Final = 2 * 2**20
"""The maximum size of a piece of text, unless it is a single row. Several exist at a time."""

_KEPT_BYTES: Final = 4 * PIECE_BYTES_MAX
_INDEX: Final = pa.int32()
_OFFSET_BYTES: Final = 4
_NOTHING: Final = pa.scalar("", pa.string())
_COMBINATION_ROWS: Final = 16
"""How often each combination of two parts must come, on average, for them to become one."""
_CONSTANT_ROWS: Final = 4
"""The same if one of the parts is constant, so that every combination exists."""
_RUN_ROWS: Final = 8
"""How many rows a run must have, on average, for the parts that are alike in it to become one."""
_MERGED_BYTES_MAX: Final = 4 * 2**20
"""What the texts of a merged part may take, as far as the longest tell."""


@dataclass(frozen=True, slots=True)
class Part:
    """One fragment of every row: the row's `indices` (int32) entry says which of `texts`.

    Neither holds nulls.
    """

    texts: pa.StringArray
    indices: pa.Int32Array

    @property
    def bytes_max(self) -> int:
        """The bytes of its longest text."""
        longest: int = pc.max(pc.binary_length(self.texts)).as_py()
        return longest


def constant(text: str, rows: int) -> Part:
    """The same fragment in all of `rows` rows."""
    return Part(pa.array([text], pa.string()), pa.repeat(_index(0), rows))


def one_each(texts: pa.StringArray) -> Part:
    """A separate fragment for each row."""
    return Part(texts, pa.arange(0, len(texts)).cast(_INDEX))


def joined(parts: Sequence[Part]) -> Iterator[tuple[bytes, int]]:
    """The rows made of `parts`, at least one, as texts of PIECE_BYTES_MAX; how many rows each has.

    There is nothing between the rows.
    """
    _keep_memory()
    few = _by_runs(_combined(parts))
    rows = len(few[0].indices)
    texts = pa.concat_arrays([part.texts for part in few])
    indices = _row_by_row(few)
    rows_max = max(1, PIECE_BYTES_MAX // max(1, sum(part.bytes_max for part in few)))
    for start in range(0, rows, rows_max):
        count = min(rows_max, rows - start)
        yield _gathered(texts, indices.slice(start * len(few), count * len(few))), count


def _combined(parts: Sequence[Part]) -> list[Part]:
    """Fewer parts that say the same: neighbours of which few combinations exist become one."""
    few = [parts[0]]
    for part in parts[1:]:
        if _is_combination_worth_it(few[-1], part):
            few[-1] = _combination(few[-1], part)
        else:
            few.append(part)
    return few


def _is_combination_worth_it(left: Part, right: Part) -> bool:
    is_constant = 1 in {len(left.texts), len(right.texts)}
    often = _CONSTANT_ROWS if is_constant else _COMBINATION_ROWS
    combinations = len(left.texts) * len(right.texts)
    return combinations <= max(1, len(left.indices) // often) and _is_small(
        combinations, [left, right]
    )


def _combination(left: Part, right: Part) -> Part:
    """Both parts as one, with a text for each combination."""
    width = _index(len(right.texts))
    numbers = pa.arange(0, len(left.texts) * len(right.texts)).cast(_INDEX)
    first = pc.divide(numbers, width)
    second = pc.subtract(numbers, pc.multiply(first, width))
    texts = pc.binary_join_element_wise(left.texts.take(first), right.texts.take(second), _NOTHING)
    return Part(texts, pc.add(pc.multiply(left.indices, width), right.indices))


def _by_runs(parts: Sequence[Part]) -> list[Part]:
    """Fewer parts that say the same: neighbours that stay alike for some rows become one.

    So do the actor, request and address of the rows of one request.
    """
    few: list[Part] = []
    held: list[Part] = []
    held_changes = None
    runs_max = len(parts[0].indices) // _RUN_ROWS
    for part in parts:
        changes = pc.not_equal(part.indices.slice(1), part.indices.slice(0, len(part.indices) - 1))
        both = changes if held_changes is None else pc.or_(held_changes, changes)
        if held and both.true_count < runs_max and _is_small(both.true_count + 1, [*held, part]):
            held.append(part)
            held_changes = both
        else:
            few += _runs(held, held_changes)
            held, held_changes = [part], changes
    return few + _runs(held, held_changes)


def _runs(parts: list[Part], changes: pa.BooleanArray | None) -> list[Part]:
    """`parts` as one, with a text for each run of rows between `changes`."""
    if len(parts) < 2:
        return parts
    is_first = pa.concat_arrays([pa.array([True]), changes])
    starts = pc.indices_nonzero(is_first)
    texts = [part.texts.take(part.indices.take(starts)) for part in parts]
    numbers = pc.subtract(pc.cumulative_sum(is_first.cast(_INDEX)), _index(1))
    return [Part(pc.binary_join_element_wise(*texts, _NOTHING), numbers)]


def _is_small(texts: int, parts: Sequence[Part]) -> bool:
    """True if so many texts joined of those of `parts` take no more than _MERGED_BYTES_MAX."""
    return texts * sum(part.bytes_max for part in parts) <= _MERGED_BYTES_MAX


def _row_by_row(parts: Sequence[Part]) -> pa.Int32Array:
    """Where among the texts of all `parts`, one behind the other, the fragments of each row are."""
    columns = []
    before = 0
    for part in parts:
        columns.append(pc.add(part.indices, _index(before)))
        before += len(part.texts)
    table = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
    by_row = pa.py_buffer(table.to_tensor(row_major=True))
    return pa.Array.from_buffers(_INDEX, table.num_rows * len(columns), [None, by_row])


def _gathered(texts: pa.StringArray, indices: pa.Int32Array) -> bytes:
    """The `texts` at `indices`, concatenated."""
    taken = texts.take(indices)
    # Arrow stores the values of an array contiguously: that is already the text.
    _, offsets, content = taken.buffers()
    count = len(indices)
    end = memoryview(offsets)[count * _OFFSET_BYTES : (count + 1) * _OFFSET_BYTES]
    return bytes(memoryview(content)[: int.from_bytes(end, sys.byteorder)])


@cache
def _keep_memory() -> None:
    """Keep memory that pieces release in the process.

    The C library (glibc) would return it to the system and fetch it again, page by page, for the
    next piece: a sixth of the time that encoding takes. It takes the size of the largest block that
    was given back for what is normal. This one is never written to, so it costs nothing.
    """
    bytes(_KEPT_BYTES)


def _index(number: int) -> pa.Scalar:
    # With its type: to guess it Arrow looks for a module that is not there.
    return pa.scalar(number, _INDEX)
