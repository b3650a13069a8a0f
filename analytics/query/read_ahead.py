"""Fetching what a query will read next while it reads what comes before.

For stores whose files are not all local. One object takes as long to arrive as sixteen do, so files
that are read one by one are requested in advance, and a limited number of them.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot

SEGMENTS_AHEAD: Final = 16
"""Segments of an export that are on their way while one is being read."""


class Scan(Protocol):
    """A scan of the rows of one part of a snapshot."""

    @property
    def part(self) -> Snapshot:
        """What it covers."""


_Scan = TypeVar("_Scan", bound=Scan)


def ahead(scans: Iterable[_Scan], segments: SegmentStore) -> Iterator[_Scan]:
    """`scans`; while one is read, `segments` fetches what the next ones read."""
    coming: deque[_Scan] = deque()
    if segments.is_local:
        yield from scans
        return
    count = 0
    for scan in scans:
        segments.fetch_ahead(scan.part.segments)
        coming.append(scan)
        count += len(scan.part.segments)
        while coming and count > SEGMENTS_AHEAD:
            scan = coming.popleft()
            count -= len(scan.part.segments)
            yield scan
    yield from coming
