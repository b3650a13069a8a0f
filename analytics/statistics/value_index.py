"""Looks up values in the index files of segments.

An index is written together with its segment. One that is missing or
damaged leaves its counts unknown until it is rebuilt, and the query reads the rows instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add
from threading import Lock
from typing import Final, TypeVar

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.filters import Condition, Term
from analytics.model.schema import schema_of
from analytics.storage.index_blocks import DamagedIndex
from analytics.storage.segment_index import (
    GROUP_BITS,
    HEAD_VALUES,
    INDEXED_COLUMNS,
    NO_HEAD,
    NO_HEADS,
    ColumnEntry,
    Directory,
    Head,
    Heads,
    IndexContents,
    IndexReader,
    Kind,
    open_index,
)
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import SegmentStore

KIND_COLUMNS: Final = ("event", "decision")
"""The columns by which indexes count values separately: most filters except searches name them."""

ALL_GROUPS: Final = 2**GROUP_BITS - 1
DAMAGED_MAX: Final = 1_000
"""How many segments are remembered for a rebuild of their index."""


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """How many rows of one segment meet a condition, by kind, and in which row groups they are.

    `groups` has a bit for each `groups_a_bit` row groups, from the file's first on.
    """

    kinds: tuple[Kind, ...]
    rows: tuple[int, ...]
    groups: int
    groups_a_bit: int

    def of_kinds(self, conditions: Sequence[Condition]) -> int:
        """The rows that also meet `conditions`, all of them on KIND_COLUMNS."""
        counted = zip(self.kinds, self.rows, strict=True)
        return sum(rows for kind, rows in counted if meets(kind, conditions))

    def may_be_in(self, group: int) -> bool:
        """False only if no row group of this number (from 0) has such a row."""
        return bool(self.groups >> min(group // self.groups_a_bit, GROUP_BITS - 1) & 1)


class ValueIndex:
    """The indexes of `segments`. Safe to use from several threads."""

    def __init__(self, segments: SegmentStore, bytes_max: int) -> None:
        """Keep directories and counts, which never change, within `bytes_max` bytes."""
        self._segments = segments
        self._known = ByteCache(bytes_max)
        self._damaged: dict[str, Segment] = {}
        self._lock = Lock()

    def count(self, segment: Segment, condition: Condition) -> ValueCounts | None:
        """The rows of `segment` that meet `condition`; None if its index cannot say."""
        if condition.column not in INDEXED_COLUMNS:
            return None
        contents = self._find(segment)
        if contents is not None and (absent := _counts_of_absent(contents.directory, condition)):
            return absent
        key = (segment.segment_id, condition)

        def read(reader: IndexReader) -> ValueCounts | None:
            absent = _counts_of_absent(reader.contents.directory, condition)
            if absent is not None:  # and will be told as quickly again
                return absent
            counts = _count(reader, segment, condition)
            if counts is not None:
                terms = sum(len(term.text) for term in condition.terms)
                self._known.keep(key, counts, ENTRY_BYTES + terms)
            return counts

        known: ValueCounts | None = self._known.find(key)[1]
        return known or self._read(segment, read)

    def count_all(self, segment: Segment) -> ValueCounts | None:
        """All rows of `segment` by kind; None if its index cannot be read."""
        contents = self._contents_of(segment)
        if contents is None:
            return None
        kinds = contents.directory.kinds
        return ValueCounts(kinds, tuple(kind.rows for kind in kinds), ALL_GROUPS, 1)

    def column(self, segment: Segment, name: str) -> ColumnEntry | None:
        """What the index of `segment` says about a whole column; None if it says nothing."""
        contents = self._contents_of(segment)
        return None if contents is None else _column(contents.directory, segment, name)

    def heads(self, segment: Segment, column: ColumnEntry) -> tuple[Head, Heads] | None:
        """The heads of a column of `segment` that has some; None if they cannot be read."""

        def decode() -> tuple[tuple[Head, Heads], int]:
            decoded = column.decoded_heads()
            return decoded, ENTRY_BYTES + 128 * HEAD_VALUES * (1 + len(decoded[1]))

        try:
            found: tuple[Head, Heads] = self._known.get((segment.segment_id, column.name), decode)
        except DamagedIndex:
            self._report(segment)
            return None
        return found

    def all_values(
        self, segment: Segment, name: str, conditions: Sequence[Condition]
    ) -> dict[str, int] | None:
        """The rows of each value of a column that meet `conditions`, all of them on KIND_COLUMNS.

        None if its index does not say.
        """

        def read(reader: IndexReader) -> dict[str, int] | None:
            directory = reader.contents.directory
            column = _column(directory, segment, name)
            if column is None:
                return None
            is_met = [meets(kind, conditions) for kind in directory.kinds]
            rows: dict[bytes, int] = {}
            for line in reader.lines(column):
                if is_met[line.kind]:
                    rows[line.value] = rows.get(line.value, 0) + line.rows
            return {value.decode(): count for value, count in rows.items()}

        return self._read(segment, read)

    def fetch(self, segments: Sequence[Segment]) -> None:
        """Make the indexes of `segments` local that were not read before. Raises StoreFault."""
        if not self.is_local:
            self._segments.fetch_indexes(
                [segment for segment in segments if self._find(segment) is None]
            )

    @property
    def is_local(self) -> bool:
        """True if no index has to be fetched."""
        return self._segments.is_local

    def take_damaged(self) -> list[Segment]:
        """The segments whose index turned out missing or damaged since the last call."""
        with self._lock:
            damaged = list(self._damaged.values())
            self._damaged.clear()
        return damaged

    def _contents_of(self, segment: Segment) -> IndexContents | None:
        return self._find(segment) or self._read(segment, lambda reader: reader.contents)

    def _find(self, segment: Segment) -> IndexContents | None:
        contents: IndexContents | None = self._known.find(segment.segment_id)[1]
        return contents

    def _read(self, segment: Segment, use: Callable[[IndexReader], _Result]) -> _Result | None:
        # What was read before says nothing of an index that has been rebuilt since: then once more.
        for contents in (self._find(segment), None):
            try:
                with (
                    self._segments.local_index(segment),
                    open_index(self._segments.root, segment, contents) as reader,
                ):
                    if contents is None:
                        size = reader.contents.directory.size
                        self._known.keep(segment.segment_id, reader.contents, size)
                    return use(reader)
            # Checksums are right and lines are not: of a kind that there is not, or no text.
            except (DamagedIndex, IndexError, UnicodeDecodeError):
                continue
        self._report(segment)
        return None

    def _report(self, segment: Segment) -> None:
        with self._lock:
            if len(self._damaged) < DAMAGED_MAX:
                self._damaged[segment.segment_id] = segment


def meets(kind: Kind, conditions: Iterable[Condition]) -> bool:
    """Whether rows of `kind` meet `conditions`, all of them on KIND_COLUMNS."""
    return all(
        condition.is_met(kind.event if condition.column == "event" else kind.decision)
        for condition in conditions
    )


def _column(directory: Directory, segment: Segment, name: str) -> ColumnEntry | None:
    """What `directory` says about a column; a column newer than `segment` has nulls alone."""
    if name not in schema_of(segment.schema_version, segment.segment_id).names:
        return ColumnEntry(
            name, tuple(kind.rows for kind in directory.kinds), (), NO_HEAD, NO_HEADS
        )
    return directory.column(name)


def _counts_of_absent(directory: Directory, condition: Condition) -> ValueCounts | None:
    """The counts of a condition that no row meets, as the filter of its column says."""
    column = directory.column(condition.column)
    wanted = condition.wanted
    if column is None or not wanted:
        return None
    for term in wanted:
        if term.is_prefix or column.may_have(term.text.encode(errors="surrogatepass")):
            return None
    return ValueCounts(directory.kinds, (0,) * len(directory.kinds), 0, directory.groups_a_bit)


def _count(reader: IndexReader, segment: Segment, condition: Condition) -> ValueCounts | None:
    directory = reader.contents.directory
    column = _column(directory, segment, condition.column)
    if column is None:
        return None
    rows = [0] * len(directory.kinds)
    groups = 0
    for low, high in value_ranges(condition):
        counts = reader.count_range(column, low, high)
        rows = list(map(add, rows, counts.rows))
        groups |= counts.groups
    if condition.is_met(None):
        rows = list(map(add, rows, column.nulls))
        groups = ALL_GROUPS  # the positions of nulls are not stored
    return ValueCounts(directory.kinds, tuple(rows), groups, directory.groups_a_bit)


Range = tuple[bytes, bytes]
"""All values from the first, inclusive, to the second, exclusive, in the order of their UTF-8."""

_BEYOND_ALL = b"\xff"
"""No UTF-8 begins with this byte."""


def value_ranges(condition: Condition) -> list[Range]:
    """The values that meet `condition`, as disjoint ranges in order.

    Null is in none of them. A condition without positive terms begins with all values.
    """
    wanted = _union([_range(term) for term in condition.wanted]) or [(b"", _BEYOND_ALL)]
    for term in condition.unwanted:
        wanted = _without(wanted, _range(term))
    return wanted


def _range(term: Term) -> Range:
    low = term.text.encode(errors="surrogatepass")
    if not term.is_prefix:
        return low, low + b"\0"  # nothing lies between a value and itself with a zero byte behind
    return low, low[:-1] + bytes([low[-1] + 1]) if low else _BEYOND_ALL


def _union(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _without(ranges: list[Range], removed: Range) -> list[Range]:
    low, high = removed
    parts = [
        part for start, end in ranges for part in ((start, min(end, low)), (max(start, high), end))
    ]
    return [(start, end) for start, end in parts if start < end]
