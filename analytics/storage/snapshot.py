"""What queries are answered from: all rows of one tenant, as of one moment.

A snapshot names every file and journal batch it covers, so what it holds never changes while it
is read.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date

from analytics.model.filters import Order
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of one tenant as of one read transaction.

    `watermark` is the highest `seq` given out by then, to any tenant.
    """

    tenant_id: str
    watermark: int
    segments: tuple[Segment, ...]
    batches: tuple[JournalBatch, ...]

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to read."""
        return not self.segments and not self.batches

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """The first and last seq of each segment and batch, and how many rows it has."""
        segments = [(each.min_seq, each.max_seq, each.rows) for each in self.segments]
        return segments + [(each.min_seq, each.max_seq, each.rows) for each in self.batches]

    def days(self, order: Order) -> list[date]:
        """The UTC days of its rows, in that order."""
        held = {s.day for s in self.segments} | {b.day for b in self.batches}
        return sorted(held, reverse=order is Order.NEWEST_FIRST)

    def with_segments(self, segments: Iterable[Segment]) -> "Snapshot":
        """The same with `segments` in place of its own."""
        return replace(self, segments=tuple(segments))

    def between(self, first: int, end: int) -> "Snapshot":
        """The part of it that may have rows whose seq is from `first` to before `end`."""
        return replace(
            self,
            watermark=min(self.watermark, end - 1),
            segments=tuple(s for s in self.segments if s.min_seq < end and s.max_seq >= first),
            batches=tuple(b for b in self.batches if b.min_seq < end and b.max_seq >= first),
        )

    def of_days(self, days: Collection[date]) -> "Snapshot":
        """The part of it that is of `days`."""
        wanted = frozenset(days)
        return replace(
            self,
            segments=tuple(segment for segment in self.segments if segment.day in wanted),
            batches=tuple(batch for batch in self.batches if batch.day in wanted),
        )
