"""What a table format must do: the seam between the publisher and Iceberg or Delta."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from analytics.storage.segment_metadata import Segment

SUMMARY_PREFIX: Final = "countersign."
COMPLETE_THROUGH: Final = f"{SUMMARY_PREFIX}complete_through_seq"
"""In the summary of each snapshot: every row with at most this seq is in the table."""

TENANT_COLUMN: Final = "tenant"
"""The column that files lack: readers take it from the partition of a file.

Named like the folder that it is in: polars refuses a Delta table whose paths have another name."""


class FormatName(StrEnum):
    """The formats that can be published."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class TableMissing(Exception):
    """A table's own metadata is not where it should be: the table must be started over."""


class TableOvertaken(Exception):
    """The table has changed since it was read: nothing was committed."""


@dataclass(frozen=True, slots=True)
class TableHead:
    """The current snapshot of a table.

    `version` identifies it among all that the table ever had: a metadata file of Iceberg, a
    number of Delta. `files` maps the id of each segment in it to the URI of its file.
    """

    version: str
    snapshot: str | None
    files: dict[str, str]
    complete_through_seq: int
    snapshots: int


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """How the next snapshot differs.

    Segments in `added` with their URIs, ids of segments in `removed`. `at` is its time.
    """

    added: Sequence[tuple[Segment, str]]
    removed: frozenset[str]
    complete_through_seq: int
    at: datetime

    def files_after(self, head: TableHead | None) -> dict[str, str]:
        """The files of the snapshot that follows `head` (None: of the first one)."""
        files = dict(head.files) if head else {}
        for segment_id in self.removed:
            files.pop(segment_id, None)
        return files | {segment.segment_id: uri for segment, uri in self.added}


class TableFormat(Protocol):
    """One table. All methods block, and raise OSError if the storage fails.

    A version is what `write` and `expire` return. With Iceberg readers see it once the catalog
    names it; with Delta at once.
    """

    name: FormatName
    location: str
    library_errors: tuple[type[Exception], ...] = ()
    """What a library raises for the storage besides OSError."""

    def read(self, version: str | None) -> TableHead | None:
        """The table at `version` of the catalog; None if there is no table yet.

        Raises TableMissing.
        """

    def write(self, head: TableHead | None, change: SnapshotChange) -> TableHead:
        """`head` with `change` as one new snapshot; None begins a table.

        Raises TableOvertaken if the table is not at `head` any more.
        """

    def is_current(self, head: TableHead) -> bool:
        """True if no other version followed `head`, which the catalog names."""
        return True

    def announce(self, head: TableHead) -> None:
        """Show `head`, which is committed, to readers that do not ask the catalog."""
        return

    def named(self, head: TableHead, since: datetime) -> frozenset[str]:
        """The ids of all segments in snapshots that were current at or after `since`."""

    def expire(self, head: TableHead, before: datetime, at: datetime) -> TableHead | None:
        """`head` without the snapshots superseded before `before`; None if there are none.

        `at` is now.
        """

    def sweep(self, head: TableHead, before: datetime) -> int:
        """Remove metadata files that no snapshot uses, written before `before`; return how many."""
        return 0

    def remove(self) -> None:
        """Remove all metadata of the table; its data files are not its own."""


def segment_id_of(uri: str) -> str:
    """The id of the segment whose file is at `uri`."""
    return uri.rpartition("/")[2].partition(".")[0]


def difference(head: TableHead | None, wanted: Collection[str]) -> tuple[list[str], frozenset[str]]:
    """The ids of segments to add to `head` and to remove from it, so that it has those `wanted`."""
    have = head.files if head else {}
    added = [segment_id for segment_id in wanted if segment_id not in have]
    return added, frozenset(have.keys() - set(wanted))
