"""Building the index of a segment from its rows, one row group at a time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.storage.index_blocks import (
    LINE_SCHEMA,
    VALUE_BYTES_MAX,
    BlockEntry,
    encode_blocks,
)
from analytics.storage.segment_index import (
    GROUP_BITS,
    HEAD_COLUMNS,
    HEAD_VALUES,
    HOURS,
    INDEXED_COLUMNS,
    NO_HEAD,
    NO_HEADS,
    ColumnEntry,
    Directory,
    Head,
    Heads,
    Kind,
    encode_heads,
    encode_index,
)
from analytics.storage.segment_metadata import Segment
from analytics.storage.value_filter import encode_filter

INDEX_BYTES_MIN: Final = 256 * 1024
COLUMN_PART_MAX: Final = 0.25
"""A column that would take more than this part of the segment, and more than INDEX_BYTES_MIN, is
not indexed: its values differ from row to row, and reading the rows costs no more."""

HEAD_ROWS_MIN: Final = 4_096
"""A file of so many rows has heads of columns of one block, too: that can have hundreds of values.
Of a smaller file a head bounds little, and a block is read as quickly."""

_LINES_MAX: Final = 1_000_000
"""Lines of a column that are held before those of one value and kind are added up."""

_SHIFT: Final = pa.scalar(32, pa.int64())
_PLACE: Final = pa.scalar(2**32 - 1, pa.int64())
_MICROSECONDS: Final = 3_600_000_000
"""Of an hour."""

_KindKey = tuple[str, str | None]


class IndexBuilder:
    """Counts the values of a segment's columns while its row groups are written.

    `groups_a_bit` is what `share_bits` says of the row groups expected; more of them only make the
    last bit less exact.
    """

    def __init__(self, groups_a_bit: int) -> None:
        self._groups_a_bit = groups_a_bit
        self._groups = 0
        self._kinds: dict[_KindKey, int] = {}
        self._hours: defaultdict[int, list[int]] = defaultdict(lambda: [0] * HOURS)
        self._lines: dict[str, list[pa.Table]] = {name: [] for name in INDEXED_COLUMNS}
        self._is_too_long: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        """Count one row group (AUDIT_SCHEMA), the next of the file."""
        bit = 1 << min(self._groups // self._groups_a_bit, GROUP_BITS - 1)
        self._groups += 1
        kinds = self._number_kinds(rows)
        self._count_hours(kinds, rows["created_at"])
        for name, held in self._lines.items():
            # With all its rows or not at all: counts of some would pass for those of all.
            if name in self._is_too_long:
                continue
            values = _encoded(rows.column(name))
            if (pc.max(pc.binary_length(values.dictionary)).as_py() or 0) > VALUE_BYTES_MAX:
                self._is_too_long.add(name)
                held.clear()
                continue
            held.append(_count_lines(values, kinds, bit))
            if sum(lines.num_rows for lines in held) > _LINES_MAX:
                held[:] = [_added_up(held)]

    def content(self, segment: Segment) -> bytes:
        """The index file of `segment`, whose row groups were added."""
        columns: list[ColumnEntry] = []
        blocks: list[bytes] = []
        offset = 0
        for name in INDEXED_COLUMNS:
            lines = _added_up(self._lines[name])
            encoded = encode_blocks(lines, len(self._kinds), offset)
            size = sum(entry.size for entry, _ in encoded)
            is_too_large = size > max(INDEX_BYTES_MIN, segment.size * COLUMN_PART_MAX)
            if is_too_large or name in self._is_too_long:
                continue
            columns.append(self._column(name, lines, tuple(entry for entry, _ in encoded)))
            blocks += [data for _, data in encoded]
            offset += size
        directory = Directory(
            segment.segment_id,
            segment.size,
            segment.sha256,
            self._groups_a_bit,
            tuple(
                Kind(*key, sum(self._hours[kind]), tuple(self._hours[kind]))
                for key, kind in self._kinds.items()
            ),
            tuple(columns),
        )
        return encode_index(directory, blocks)

    def _column(self, name: str, lines: pa.Table, blocks: tuple[BlockEntry, ...]) -> ColumnEntry:
        rows = sum(map(sum, self._hours.values()))
        is_long = len(blocks) > 1 or (len(blocks) == 1 and rows >= HEAD_ROWS_MIN)
        has_heads = name in HEAD_COLUMNS and is_long
        head, heads = encode_heads(*self._heads(lines)) if has_heads else (NO_HEAD, NO_HEADS)
        return ColumnEntry(name, self._nulls(blocks), blocks, head, heads, _filter(lines))

    def _number_kinds(self, rows: pa.Table) -> pa.Int64Array:
        """The number of each row's kind, from 0 in order of appearance in the segment."""
        events, decisions = _encoded(rows.column("event")), _encoded(rows.column("decision"))
        width = len(decisions.dictionary) + 1
        places = pc.fill_null(decisions.indices, pa.scalar(width - 1, pa.int32()))
        pairs = pc.add(pc.multiply(events.indices, pa.scalar(width, pa.int32())), places)
        names = [*decisions.dictionary.to_pylist(), None]
        numbers = pc.dictionary_encode(pairs)
        mapping = []
        for pair in numbers.dictionary.to_pylist():
            key = (events.dictionary[pair // width].as_py(), names[pair % width])
            mapping.append(self._kinds.setdefault(key, len(self._kinds)))
        return pa.array(mapping, pa.int64()).take(numbers.indices)

    def _count_hours(self, kinds: pa.Int64Array, created_at: pa.ChunkedArray) -> None:
        """Add the rows of each kind and hour, all of one day."""
        instants = created_at.cast(pa.int64()).combine_chunks()
        if not len(instants):
            return
        day = HOURS * _MICROSECONDS
        midnight = pa.scalar(instants[0].as_py() // day * day)
        hours = pc.divide(pc.subtract(instants, midnight), pa.scalar(_MICROSECONDS))
        counted = pc.value_counts(pc.add(pc.multiply(kinds, pa.scalar(HOURS)), hours))
        for place, rows in zip(*(part.to_pylist() for part in counted.flatten()), strict=True):
            kind, hour = divmod(place, HOURS)
            self._hours[kind][hour] += rows

    def _nulls(self, blocks: Sequence[BlockEntry]) -> tuple[int, ...]:
        """The rows of each kind that have no value."""
        return tuple(
            sum(self._hours[kind]) - sum(block.kind_rows[kind] for block in blocks)
            for kind in self._kinds.values()
        )

    def _heads(self, lines: pa.Table) -> tuple[Head, Heads]:
        """The head of all rows, and that of each decision."""
        of_kind = pa.array([decision for _, decision in self._kinds], pa.string())
        decided = lines.append_column("decision", of_kind.take(lines["kind"]))
        counted = _rows_by(decided, "decision", "value")
        decisions = dict.fromkeys(decision for _, decision in self._kinds)
        heads = tuple((name, _head(_with_decision(counted, name))) for name in decisions)
        return _head(_rows_by(lines, "value")), heads


def _rows_by(lines: pa.Table, *columns: str) -> pa.Table:
    """The columns, and in `rows_sum` how many rows have these values."""
    # Starting threads takes longer than most segments' lines.
    return lines.group_by(list(columns), use_threads=False).aggregate([("rows", "sum")])


def _with_decision(counted: pa.Table, decision: str | None) -> pa.Table:
    if decision is None:
        return counted.filter(pc.is_null(counted["decision"]))
    return counted.filter(pc.equal(counted["decision"], pa.scalar(decision, pa.string())))


def _head(counted: pa.Table) -> Head:
    # One more than is kept: its rows are the bound for all values that are left out.
    places = pc.select_k_unstable(counted["rows_sum"], HEAD_VALUES + 1, [("", "descending")])
    first = counted.take(places)
    values = zip(first["value"].to_pylist(), first["rows_sum"].to_pylist(), strict=True)
    head = tuple(values)
    others_max = head[HEAD_VALUES][1] if len(head) > HEAD_VALUES else 0
    return Head(head[:HEAD_VALUES], others_max)


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """The whole column with one dictionary."""
    if pa.types.is_dictionary(column.type):
        return column.unify_dictionaries().combine_chunks()
    return column.combine_chunks().dictionary_encode()


def _count_lines(values: pa.DictionaryArray, kinds: pa.Int64Array, bit: int) -> pa.Table:
    """The lines of one row group."""
    # Value and kind are counted as one number. A null's is null, and so is no line.
    keys = pc.bit_wise_or(pc.shift_left(kinds, _SHIFT), values.indices.cast(pa.int64()))
    counted = pc.value_counts(keys.drop_null())
    places = pc.bit_wise_and(counted.field("values"), _PLACE)
    return pa.table(
        [
            values.dictionary.take(places),
            pc.shift_right(counted.field("values"), _SHIFT).cast(pa.int32()),
            pa.repeat(pa.scalar(bit, pa.uint64()), len(counted)),
            counted.field("counts"),
        ],
        schema=LINE_SCHEMA,
    )


def _added_up(tables: Sequence[pa.Table]) -> pa.Table:
    """One line for each value and kind, in order: their rows added up, their bits joined."""
    lines = pa.concat_tables([LINE_SCHEMA.empty_table(), *tables])
    if len(tables) > 1:  # a row group has each value and kind once
        # Each bit once for each value and kind, so that adding the bits up joins them.
        by_bit = _rows_by(lines, "value", "kind", "bit")
        sums = [("bit", "sum"), ("rows_sum", "sum")]
        summed = by_bit.group_by(["value", "kind"], use_threads=False).aggregate(sums)
        lines = summed.rename_columns(["value", "kind", "bit", "rows"]).cast(LINE_SCHEMA)
    return lines.sort_by([("value", "ascending"), ("kind", "ascending")])


def _filter(lines: pa.Table) -> bytes:
    values = lines["value"].combine_chunks().cast(pa.binary())
    return encode_filter(pc.run_end_encode(values).values.to_pylist())
