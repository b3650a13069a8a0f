"""The segments of a backup as versions of objects: recorded, compared, and brought back."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from analytics.model.instants import format_us
from analytics.model.retention import Tier, pruned_at
from analytics.storage.bucket_place import parse_place
from analytics.storage.fsync import fsync
from analytics.storage.objects import Objects
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import ObjectMissing
from analytics.storage.verified_files import ExpectedFile, index_file, rows_file
from service.audit.backup.manifest import AUDIT, KeptObject, Manifest
from service.audit.backup.refusals import NO_VERSIONS, BackupDamaged, ObjectDiffers
from service.audit.installation import open_objects_at
from service.audit.lake import Lake
from service.core.clock import utc_now
from service.core.settings import Settings
from service.core.threads import run_uncancellable

_ASKED_AT_ONCE: Final = 256
"""Segments in one step, between which the command can be interrupted."""


async def versioned_bucket(lake: Lake) -> S3Segments:
    """The bucket of the segments. Raises NO_VERSIONS unless it keeps versions."""
    segments = lake.segments
    if not isinstance(segments, S3Segments):
        raise NO_VERSIONS
    if not await run_uncancellable(segments.keeps_versions):
        raise NO_VERSIONS
    return segments


async def record_versions(
    bucket: S3Segments,
    segments: Sequence[Segment],
    damaged: Collection[str],
    tiers: Mapping[str, str],
) -> tuple[list[KeptObject], list[Segment]]:
    """The versions of the objects of `segments` and their indexes; and the segments to copy.

    To be copied are segments whose object is missing, differs in size from the catalog, or has no
    version because it is older than versioning; those of which the catalog has no digest; and those
    `damaged` (ids) when last verified, which the copy compares with the catalog. In a bucket with
    object lock, versions of segments are removed with their day: by the tier of
    each tenant, where nothing holds them.
    """
    kept: list[KeptObject] = []
    others: list[Segment] = []
    for start in range(0, len(segments), _ASKED_AT_ONCE):
        batch = segments[start : start + _ASKED_AT_ONCE]
        others += (segment for segment in batch if segment.segment_id in damaged)
        batch = [segment for segment in batch if segment.segment_id not in damaged]
        rows = await _versions(bucket, [rows_file(bucket.root, segment) for segment in batch])
        if bucket.locks is not None:
            rows = [_until_pruned(*each, tiers) for each in zip(rows, batch, strict=True)]
        kept += (entry for entry in rows if entry is not None)
        recorded = [
            segment for segment, entry in zip(batch, rows, strict=True) if entry is not None
        ]
        others += (segment for segment, entry in zip(batch, rows, strict=True) if entry is None)
        indexes = [index_file(bucket.root, segment) for segment in recorded if segment.index_size]
        kept += filter(None, await _versions(bucket, indexes))
    return kept, others


def _until_pruned(
    entry: KeptObject | None, segment: Segment, tiers: Mapping[str, str]
) -> KeptObject | None:
    tier = tiers.get(segment.tenant_id)
    at = None if tier is None else pruned_at(Tier(tier), segment.day)
    if entry is None or at is None:
        return entry
    return msgspec.structs.replace(entry, pruned_at=format_us(at))


async def _versions(bucket: S3Segments, files: Sequence[ExpectedFile]) -> list[KeptObject | None]:
    found = await run_uncancellable(bucket.find_objects, [file.path for file in files])
    return [
        KeptObject(
            f"{AUDIT}/{file.path.relative_to(bucket.root).as_posix()}",
            file.size,
            file.sha256,
            entry.version,
        )
        if entry is not None and entry.size == file.size and entry.version and file.sha256
        else None
        for file, entry in zip(files, found, strict=True)
    ]


def version_fault(objects: Objects, entry: KeptObject) -> str:
    """What is wrong with the version of `entry`, which is read as a whole; "" for nothing."""
    found = objects.find(entry.key, entry.version)
    if found is None:
        return f"version {entry.version} is missing"
    if found.size != entry.size:
        return f"version {entry.version} has {found.size} bytes instead of {entry.size}"
    try:
        sha256 = objects.digest(entry.key, entry.size, entry.version)
    except ObjectMissing:
        return f"version {entry.version} is missing"
    return "" if sha256 == entry.sha256 else f"version {entry.version} has other contents"


class BroughtBack:
    """Brings the versions of a backup to `target`, or without one to a folder."""

    def __init__(
        self, settings: Settings, manifest: Manifest, target: Objects | None, part: Path
    ) -> None:
        self._source = open_objects_at(settings, manifest.objects_place)
        self._target = target
        self._part = part
        self._is_same_place = bool(settings.segments_url) and parse_place(
            settings.segments_url
        ) == parse_place(manifest.objects_place)

    def put(self, entry: KeptObject) -> None:
        """Restore the object, or the file. Raises BackupDamaged, ObjectDiffers, StoreFault.

        An index that cannot be brought back is built again later. A segment past its retention is
        pruned by the first run.
        """
        try:
            self._put(entry)
        except (BackupDamaged, ObjectDiffers):
            if entry.is_needed(utc_now()):
                raise

    def _put(self, entry: KeptObject) -> None:
        if self._target is None:
            self._download(entry, self._part / entry.path)
            return
        current = self._target.find(entry.key)
        if current is not None and current.size == entry.size:
            # A version never changes.
            if self._is_same_place and current.version == entry.version:
                return
            if self._target.digest(entry.key, entry.size) == entry.sha256:
                return
        path = self._part / ".object"
        try:
            self._download(entry, path)
            if entry.is_index or (current is not None and self._is_same_place):
                # The existing object differs from the catalog; it stays as a version.
                self._target.replace(entry.key, path)
            elif not self._target.create(entry.key, path):
                raise ObjectDiffers(value=entry.key)
        finally:
            path.unlink(missing_ok=True)

    def _download(self, entry: KeptObject, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = self._source.download(entry.key, path, entry.size, entry.version)
        except ObjectMissing:
            raise BackupDamaged(
                value=f"{entry.path}: version {entry.version} is missing in the bucket"
            ) from None
        if found != (entry.size, entry.sha256):
            path.unlink()
            raise BackupDamaged(value=f"{entry.path}: version {entry.version} is not what it was")
        fsync(path)
