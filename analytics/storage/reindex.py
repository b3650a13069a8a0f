"""Building the index of a segment again from its rows, and comparing the two."""

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from analytics.model.schema import schema_of
from analytics.storage.index_blocks import DamagedIndex
from analytics.storage.index_builder import IndexBuilder
from analytics.storage.segment_index import (
    ColumnEntry,
    IndexReader,
    index_of,
    open_index,
    share_bits,
)
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import open_segment
from analytics.storage.segment_writer import write_index


def reindex(root: Path, segment: Segment, into: Path | None = None) -> Segment:
    """Write the index of `segment`, replacing any other; see `write_index`. Raises StoreFault.

    It is written below `into` (None: `root`).
    """
    with open_segment(root, segment) as file:
        index = IndexBuilder(share_bits(file.row_group_count))
        for group in range(file.row_group_count):
            index.add(file.rows(group))
    if into is not None:
        segment.index_path(into).parent.mkdir(parents=True, exist_ok=True)
    return write_index(into or root, segment, index)


def same_bits(root: Path, segment: Segment) -> int:
    """How many row groups share a bit in the index that is there; 1 if there is none."""
    try:
        with open_index(root, segment) as index:
            return index.contents.directory.groups_a_bit
    except DamagedIndex:
        return 1


def index_fault(root: Path, segment: Segment, built: IndexBuilder) -> str | None:
    """How the index of `segment` differs from what was `built` from its rows; None if it is right.

    A missing index is no fault here.
    """
    path = segment.index_path(root)
    if not path.exists():
        return None
    try:
        with open_index(root, segment) as stored:
            held = schema_of(segment.schema_version, str(path)).names
            return _difference(stored, index_of(built.content(segment), segment), held)
    except DamagedIndex as error:
        return str(error)


def _difference(stored: IndexReader, built: IndexReader, held: Collection[str]) -> str | None:
    """What differs, apart from the compression of blocks, which libraries may do differently.

    Only columns that the segment has (`held`) count: an index that was built with an earlier
    schema version lacks those that came later, in which all rows are null. One of an earlier
    version has other heads, no filters and no hours.
    """
    said, actual = stored.contents.directory, built.contents.directory
    is_old = stored.contents.version < built.contents.version
    kinds = tuple(replace(kind, hours=()) if is_old else kind for kind in actual.kinds)
    if said.kinds != kinds or said.groups_a_bit != actual.groups_a_bit:
        return "it counts events and decisions that the rows do not have"
    columns, own_columns = (
        [column for column in directory.columns if column.name in held]
        for directory in (said, actual)
    )
    names = [column.name for column in columns]
    if names != [column.name for column in own_columns]:
        return f"it has the columns {', '.join(names)}"
    for column, own in zip(columns, own_columns, strict=True):
        is_same = column.nulls == own.nulls and (is_old or _summed(column) == _summed(own))
        if not is_same or list(stored.lines(column)) != list(built.lines(own)):
            return f"its values of {column.name} are not those of the rows"
    return None


def _summed(column: ColumnEntry) -> Sequence[object]:
    return column.head, column.heads, column.filter
