"""Text for many rows at once: each row is a sequence of fragments, and one gather joins all.

A table of audit rows says few different things many times over. So what a value looks like is
worked out once for each different value, and a row is then no more than a few indices.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES_MAX: Final = 2 * 2**20
"""What a piece of joined text takes at most, unless it is a single row. Measured: memory for larger
ones comes fresh from the system each time, which takes longer than to fill it."""

_INDEX: Final = pa.int32()
_OFFSET_BYTES: Final = 4
_NOTHING: Final = pa.scalar("", pa.string())
_WORTH_IT: Final = 16
"""How often each combination of two parts must come, on average, for them to become one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One fragment of every row: the row's `indices` (int32) entry says which of `texts`.

    Neither holds nulls.
    """

    texts: pa.StringArray
    indices: pa.Int32Array


def constant(text: str, rows: int) -> Part:
    """The same fragment in all of `rows` rows."""
    return Part(pa.array([text], pa.string()), pa.repeat(_index(0), rows))


def one_each(texts: pa.StringArray) -> Part:
    """A fragment of its own for each row."""
    return Part(texts, pa.arange(0, len(texts)).cast(_INDEX))


def determined(by: Part, others: Sequence[Part]) -> bool:
    """True if rows alike in `by` are alike in all `others`."""
    # For each text of `by` some row that has it.
    rows = pc.inverse_permutation(by.indices, max_index=len(by.texts) - 1)
    return all(
        pc.all(pc.equal(part.indices.take(rows).take(by.indices), part.indices)).as_py()
        for part in others
    )


def as_one(by: Part, parts: Sequence[Part]) -> Part:
    """`parts`, all `determined` by one of them, as one part."""
    rows = pc.inverse_permutation(by.indices, max_index=len(by.texts) - 1)
    texts = [part.texts.take(part.indices.take(rows)) for part in parts]
    return Part(pc.binary_join_element_wise(*texts, _NOTHING).fill_null(""), by.indices)


def joined(parts: Sequence[Part]) -> Iterator[tuple[bytes, int]]:
    """The rows made of `parts`, at least one, as texts of PIECE_BYTES_MAX; how many rows each has.

    Rows follow each other without anything between them.
    """
    few = _merged(parts)
    rows = len(few[0].indices)
    texts = pa.concat_arrays([part.texts for part in few])
    row_bytes_max = sum(pc.max(pc.binary_length(part.texts)).as_py() for part in few)
    rows_max = max(1, PIECE_BYTES_MAX // max(1, row_bytes_max))
    for start in range(0, rows, rows_max):
        piece = [Part(part.texts, part.indices.slice(start, rows_max)) for part in few]
        yield _gathered(texts, piece), len(piece[0].indices)


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Fewer parts that say the same: neighbours of which few combinations exist become one."""
    few = [parts[0]]
    combinations_max = max(1, len(parts[0].indices) // _WORTH_IT)
    for part in parts[1:]:
        if len(few[-1].texts) * len(part.texts) <= combinations_max:
            few[-1] = _product(few[-1], part)
        else:
            few.append(part)
    return few


def _product(left: Part, right: Part) -> Part:
    """Both as one, with a text for each combination."""
    width = _index(len(right.texts))
    numbers = pa.arange(0, len(left.texts) * len(right.texts)).cast(_INDEX)
    first = pc.divide(numbers, width)
    second = pc.subtract(numbers, pc.multiply(first, width))
    texts = pc.binary_join_element_wise(left.texts.take(first), right.texts.take(second), _NOTHING)
    return Part(texts, pc.add(pc.multiply(left.indices, width), right.indices))


def _gathered(texts: pa.StringArray, parts: Sequence[Part]) -> bytes:
    """`texts` are those of all `parts`, one behind the other."""
    columns = []
    before = 0
    for part in parts:
        columns.append(pc.add(part.indices, _index(before)))
        before += len(part.texts)
    # The indices row by row: the order in which the fragments stand in the text.
    table = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
    count = table.num_rows * len(columns)
    by_row = pa.py_buffer(table.to_tensor(row_major=True))
    found = texts.take(pa.Array.from_buffers(_INDEX, count, [None, by_row]))
    # Arrow keeps the values of an array one behind the other: that is the text.
    _, offsets, content = found.buffers()
    end = memoryview(offsets)[count * _OFFSET_BYTES : (count + 1) * _OFFSET_BYTES]
    return bytes(memoryview(content)[: int.from_bytes(end, sys.byteorder)])


def _index(number: int) -> pa.Scalar:
    # With its type: to guess it Arrow looks for a module that is not there, each time anew.
    return pa.scalar(number, _INDEX)
