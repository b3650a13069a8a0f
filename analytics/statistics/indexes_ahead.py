"""Fetches the indexes that a plan will read before it reaches them, if they are not local."""

from collections.abc import Sequence
from typing import Final

from analytics.statistics.value_index import ValueIndex
from analytics.storage.segment_metadata import Segment

FIRST_INDEXES: Final = 16
"""How many indexes are fetched first, concurrently; then twice as many, and so on."""


class IndexesAhead:
    """Fetches the indexes of `segments` as they are reached, in this order, in widening steps.

    A page that ends on its first day needs no index of the following days.
    """

    def __init__(self, index: ValueIndex, segments: Sequence[Segment]) -> None:
        self._index = index
        self._segments = segments
        self._places = {one.segment_id: place for place, one in enumerate(segments)}
        self._fetched = 0
        self._step = FIRST_INDEXES

    def reach(self, segment: Segment) -> None:
        """Announce that the index of `segment` is needed next. Raises StoreFault."""
        place = self._places.get(segment.segment_id, -1)
        while place >= self._fetched:
            part = self._segments[self._fetched : self._fetched + self._step]
            self._fetched += len(part)
            self._step *= 2
            self._index.fetch(part)
