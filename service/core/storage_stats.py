"""Storage statistics of an organisation, and of all."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Storage of one organisation, or the total of several.

    `days` counts days with rows, sealed or not; a total adds up each organisation's days. Retired
    segments were merged or pruned; their files are kept until no reader can use them, and those
    that were retired while an object lock or a legal hold was on them (lock kept) until these end.
    Damaged segments and batches were so when last verified.
    """

    days: int = 0
    segments: int = 0
    segment_rows: int = 0
    segment_bytes: int = 0
    oldest_sealed_at: datetime | None = None
    retired_segments: int = 0
    retired_bytes: int = 0
    locked_segments: int = 0
    lock_kept_segments: int = 0
    lock_kept_bytes: int = 0
    journal_rows: int = 0
    journal_batches: int = 0
    damaged_segments: int = 0
    damaged_batches: int = 0
    oldest_journal_day: date | None = None

    @property
    def rows(self) -> int:
        """All rows, sealed or not."""
        return self.segment_rows + self.journal_rows

    @property
    def bytes_per_row(self) -> float | None:
        """Average bytes of a sealed row on disk; None if nothing is sealed."""
        return self.segment_bytes / self.segment_rows if self.segment_rows else None


def total_of(parts: Iterable[StorageStats]) -> StorageStats:
    """The sum of `parts`."""
    added = list(parts)
    counts = [field.name for field in fields(StorageStats) if field.type is int]
    oldest = [part.oldest_sealed_at for part in added if part.oldest_sealed_at is not None]
    return StorageStats(
        **{name: sum(getattr(part, name) for part in added) for name in counts},
        oldest_sealed_at=min(oldest, default=None),
    )
