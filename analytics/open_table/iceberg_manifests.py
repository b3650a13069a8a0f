"""Manifests that stay small, so that a change of a few days rewrites few of them.

pyiceberg writes all files of a commit into one manifest. To take one file out of it, it reads and
writes all its entries again: at 10,000 files that takes ten seconds.
"""

from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles, _SnapshotProducer
from pyiceberg.types import DateType

ENTRIES_MAX: Final = 500
TARGET_BYTES: Final = 64 * 2**10
"""About what so many entries take; small manifests are merged up to that."""

_DAY: Final = 1
"""The place of the day in a partition."""


class _SmallManifests(_SnapshotProducer[Any]):
    """Writes added files into manifests of ENTRIES_MAX entries, those of a day together."""

    def _manifests(self) -> list[ManifestFile]:
        added = sorted(self._added_data_files, key=lambda file: file.partition[_DAY] or 0)
        manifests = [
            self._write(added[start : start + ENTRIES_MAX])
            for start in range(0, len(added), ENTRIES_MAX)
        ]
        self._added_data_files = []
        others = super()._manifests()
        self._added_data_files = added  # the summary counts them
        return [*manifests, *others]

    def _write(self, files: list[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()


class Append(_SmallManifests, _MergeAppendFiles):
    """A snapshot with more files."""


class Overwrite(_SmallManifests, _OverwriteFiles):
    """A snapshot with other files."""


def producer(
    transaction: Transaction, summary: dict[str, str], *, is_append: bool
) -> Append | Overwrite:
    """What makes the next snapshot in `transaction`."""
    make, operation = (Append, Operation.APPEND) if is_append else (Overwrite, Operation.OVERWRITE)
    return make(
        operation=operation,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=summary,
    )


def may_have_days(manifest: ManifestFile, days: Iterable[int]) -> bool:
    """False if no entry of `manifest` is of any of `days` (counted since 1970)."""
    if not manifest.partitions:
        return True
    summary = manifest.partitions[_DAY]
    if summary.lower_bound is None or summary.upper_bound is None:
        return True
    first = int(from_bytes(DateType(), summary.lower_bound))
    last = int(from_bytes(DateType(), summary.upper_bound))
    return any(first <= day <= last for day in days)
