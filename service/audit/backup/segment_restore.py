"""Restores single segments whose files are missing or damaged, or gives them up, as a service runs.

A copy from a backup, a bucket or this machine is first compared with the catalog. Then, under the
lease, the audit row is committed and the file replaced: a process that dies in between has recorded
a restore that the next run completes. A whole file is never replaced.

The rows of a segment that is given up are lost, and its day must never look complete: the loss is
an audit row, and the catalog keeps it, so that statistics, check, pages and exports tell of it.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from analytics.model.errors import StoreFault
from analytics.model.log_envelopes import AuditSegmentLost, AuditSegmentRestored
from analytics.model.rows import AuditContext
from analytics.storage.bucket_place import InvalidPlace
from analytics.storage.file_copy import FileCopy
from analytics.storage.integrity import Finding, verify_stored
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder, ObjectMissing
from analytics.storage.verified_files import no_wait
from service.audit.backup.manifest import AUDIT, read_manifest
from service.audit.backup.refusals import NOT_A_SOURCE, SEGMENT_NOT_DAMAGED, UNKNOWN_SEGMENT
from service.audit.installation import open_objects_at
from service.audit.services import OperatorServices
from service.core.errors import StorageFull, file_fault
from service.core.settings import Settings
from service.core.threads import run_uncancellable
from service.store.catalog import is_live, list_live_segments, retire_segments, set_index
from service.store.lost_segments import add_loss
from service.store.segment_locks import forget_locks
from service.store.verification import list_damaged_ids, set_verified

SourceKind = Literal["backup", "bucket", "copy"]


class Result(StrEnum):
    """What became of a segment."""

    WHOLE = "whole"
    RESTORED = "restored"
    LOST = "lost"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of `segment`: what was wrong, where the copy came from, why others were not used.

    `damage` is a kind of finding. REMOVED: it was merged or pruned meanwhile. LOST: no source has a
    whole copy.
    """

    segment: Segment
    result: Result
    damage: str = ""
    source: str = ""
    reasons: Sequence[str] = ()


class SegmentSource(Protocol):
    """A place that may have copies of segments; `name` is for the operator."""

    kind: SourceKind
    name: str

    def fetch(self, segment: Segment, target: Path) -> None:
        """Write what there is of the segment to the new file `target`. Raises StoreFault, OSError.

        It may be damaged.
        """


class BackupSource:
    """The folder of a backup, of any format: files, or versions of objects in a bucket."""

    kind: SourceKind = "backup"

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Raises NOT_A_BACKUP, BackupDamaged, NEWER_BACKUP, NEWER_DATABASE, InvalidSetting."""
        manifest = read_manifest(folder)
        self.name = str(folder)
        self._folder = folder
        self._files = {file.path for file in manifest.files}
        self._objects = {entry.path: entry for entry in manifest.object_versions}
        self._left_out = {missing.path: missing.kind for missing in manifest.missing_segments}
        self._bucket = (
            open_objects_at(settings, manifest.objects_place) if manifest.objects_place else None
        )

    def fetch(self, segment: Segment, target: Path) -> None:
        """See SegmentSource."""
        path = f"{AUDIT}/{segment.path(Path()).as_posix()}"
        if path in self._files:
            for _ in FileCopy(self._folder / path, target):
                pass
        elif self._bucket is not None and (entry := self._objects.get(path)) is not None:
            self._bucket.download(entry.key, target, segment.size, entry.version)
        elif path in self._left_out:
            raise ObjectMissing(f"the backup was taken without it ({self._left_out[path]})")
        else:
            raise ObjectMissing("the backup does not have it")


class BucketSource:
    """A bucket and prefix to which the segments were uploaded."""

    kind: SourceKind = "bucket"

    def __init__(self, settings: Settings, url: str) -> None:
        """Raises NOT_A_SOURCE, InvalidSetting."""
        try:
            self._objects = open_objects_at(settings, url)
        except InvalidPlace as error:
            raise NOT_A_SOURCE(value=url, reason=str(error)) from error
        self.name = url

    def fetch(self, segment: Segment, target: Path) -> None:
        """See SegmentSource."""
        self._objects.download(segment.path(Path()).as_posix(), target, segment.size)


class CopySource:
    """Copies of objects on this machine, or its files from before there was a bucket."""

    kind: SourceKind = "copy"

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self._root = root

    def fetch(self, segment: Segment, target: Path) -> None:
        """See SegmentSource."""
        for _ in FileCopy(segment.path(self._root), target):
            pass


def open_sources(settings: Settings, given: Sequence[str]) -> list[SegmentSource]:
    """The places to take copies from, `given` as paths of backups or URLs of buckets, in order.

    With segments in a bucket this machine's copies come first. Raises as the sources do.
    """
    own: list[SegmentSource] = [CopySource(settings.audit_dir)] if settings.segments_url else []
    named: list[SegmentSource] = [
        BucketSource(settings, each)
        if each.startswith("s3://")
        else BackupSource(settings, Path(each))
        for each in given
    ]
    return own + named


async def choose_segments(
    services: OperatorServices, tenant_id: str | None, day: date | None, ids: Sequence[str]
) -> list[Segment]:
    """The live segments of the tenant and day, if given, or those with `ids`.

    Raises UNKNOWN_SEGMENT.
    """
    live = await services.store.fetch(list_live_segments, tenant_id)
    chosen = [segment for segment in live if day in {None, segment.day}]
    if not ids:
        return chosen
    by_id = {segment.segment_id: segment for segment in chosen}
    if unknown := [segment_id for segment_id in ids if segment_id not in by_id]:
        raise UNKNOWN_SEGMENT(value=unknown[0])
    return [by_id[segment_id] for segment_id in dict.fromkeys(ids)]


@dataclass(frozen=True, slots=True)
class SegmentRestore:
    """Restores segments from `sources`; each restore is an audit row `by` the operator."""

    _services: OperatorServices
    _sources: Sequence[SegmentSource]
    _by: AuditContext

    async def restore(self, segment: Segment) -> Outcome:
        """Put the file of `segment` back if it is missing or damaged.

        Raises LeaseTaken, LeaseLost, StoreUnreachable, and StoreUnavailable, such as StorageFull.
        """
        fault, _ = await self._services.lake.verify(segment, no_wait)
        if fault is None:
            if segment.segment_id in await self._services.store.fetch(list_damaged_ids):
                await self._record(segment, None)
            return Outcome(segment, Result.WHOLE)
        temp_dir = self._services.settings.temp_dir
        with tempfile.TemporaryDirectory(prefix="restore-", dir=temp_dir) as folder:
            staged = LocalFolder(Path(folder))
            source, reasons = await run_uncancellable(self._fetch, segment, staged)
            if source is None:
                is_lost = await self._record(segment, fault)
                result = Result.LOST if is_lost else Result.REMOVED
                return Outcome(segment, result, fault.kind, reasons=reasons)
            result = await self._put_in_place(segment, fault, source, segment.path(staged.root))
        return Outcome(segment, result, fault.kind, source.name, reasons)

    def _fetch(
        self, segment: Segment, staged: LocalFolder
    ) -> tuple[SegmentSource | None, list[str]]:
        """The first source with a whole copy, which is then `staged`; and why others have none."""
        target = segment.path(staged.root)
        target.parent.mkdir(parents=True)
        reasons: list[str] = []
        for source in self._sources:
            target.unlink(missing_ok=True)
            try:
                source.fetch(segment, target)
                fault = verify_stored(staged, segment, no_wait)
            except (StoreFault, OSError) as error:
                if isinstance(error, OSError) and file_fault(error) is StorageFull:
                    raise StorageFull from error  # here: no other source would help
                reasons.append(f"{source.name}: {getattr(error, 'strerror', None) or error}")
                continue
            if fault is None:
                return source, reasons
            reasons.append(f"{source.name}: its copy does not match the catalog ({fault.kind})")
        return None, reasons

    async def _put_in_place(
        self, segment: Segment, fault: Finding, source: SegmentSource, staged: Path
    ) -> Result:
        lake = self._services.lake
        async with self._services.lease.hold() as lease:
            # Again: another command may have restored it meanwhile.
            if (await lake.verify(segment, no_wait))[0] is None:
                return Result.WHOLE
            async with lease.write() as work:
                if not await is_live(work.session, segment.segment_id):
                    return Result.REMOVED
                restored = AuditSegmentRestored(
                    segment_id=segment.segment_id,
                    day=segment.day.isoformat(),
                    rows=segment.rows,
                    damage=str(fault.kind),
                    source=source.kind,
                )
                work.record(segment.tenant_id, restored, self._by)
                # What is put back is another version of the object, and not locked.
                await forget_locks(work.session, segment.segment_id)
            await lake.restore(segment, staged)
            if (await lake.verify(segment, no_wait))[1] is not None:
                indexed = await lake.reindex(segment)
                async with lease.write() as work:
                    await set_index(work.session, indexed)
        # Last: until here the damage stays named.
        await self._record(segment, None)
        return Result.RESTORED

    async def _record(self, segment: Segment, fault: Finding | None) -> bool:
        """Note what is wrong with the segment now; False if it is not live any more."""
        async with self._services.store.write() as work:
            return bool(await set_verified(work.session, {segment.segment_id: fault}, work.now))


async def find_damage(services: OperatorServices, segment: Segment) -> Finding:
    """What is wrong with the file of `segment`. Raises SEGMENT_NOT_DAMAGED, StoreUnreachable.

    A file that cannot be fetched now is not lost.
    """
    fault, _ = await services.lake.verify(segment, no_wait)
    if fault is None:
        raise SEGMENT_NOT_DAMAGED(value=segment.segment_id)
    return fault


async def give_up(services: OperatorServices, segment: Segment, by: AuditContext) -> None:
    """Retire the damaged `segment`, with an audit row, and remember what was lost.

    Raises SEGMENT_NOT_DAMAGED, UNKNOWN_SEGMENT if it was merged or pruned meanwhile, LeaseTaken,
    LeaseLost, StoreUnreachable, StoreUnavailable.
    """
    async with services.lease.hold() as lease:
        # Under the lease: another command may have restored it since it was confirmed.
        fault = await find_damage(services, segment)
        async with lease.write() as work:
            if not await is_live(work.session, segment.segment_id):
                raise UNKNOWN_SEGMENT(value=segment.segment_id)
            lost = AuditSegmentLost(
                segment_id=segment.segment_id,
                day=segment.day.isoformat(),
                rows=segment.rows,
                first_seq=segment.min_seq,
                last_seq=segment.max_seq,
                damage=str(fault.kind),
            )
            work.record(segment.tenant_id, lost, by)
            add_loss(work.session, segment, str(fault.kind), work.now)
            await retire_segments(work.session, [segment], work.now)
