"""Takes a backup while the service runs.

The database is copied first, as of one instant, and then the files that the copy lists. A segment
sealed in between is not needed: its rows are in the copied journal. Segments are immutable, and
retired ones are kept long enough for a copy that does not take all day. A missing or damaged
segment is listed in the manifest and does not prevent the backup of the others.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analytics.storage.file_copy import FileCopy, SourceFault, sha256_of
from analytics.storage.fsync import fsync, sync_folders
from analytics.storage.integrity import FaultKind
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing
from service.audit.backup.databases import CopiedDatabase, copy_to
from service.audit.backup.manifest import (
    AUDIT,
    KeptFile,
    KeptObject,
    Manifest,
    MissingSegment,
    check_apart,
    check_room,
    make_manifest,
    part_of,
    write_manifest,
)
from service.audit.backup.object_versions import record_versions, versioned_bucket
from service.audit.backup.refusals import BACKUP_EXISTS, LINKS_IMPOSSIBLE, BackupOvertaken
from service.audit.services import OperatorServices
from service.core.secrets import secret_files
from service.core.threads import run_uncancellable
from service.store.catalog import is_live
from service.store.organisations import list_orgs
from service.store.verification import list_damaged_ids

_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK})
"""The errors of file systems that cannot create hard links between two places."""


async def take_backup(
    services: OperatorServices,
    target: Path,
    show: Callable[[int, int], None],
    *,
    is_linked: bool,
    has_secrets: bool,
    is_by_version: bool = False,
) -> Manifest:
    """Back up everything to the new folder `target`, which appears only when it is complete.

    With `is_linked` segments are hard links, else copies; either way each is read and compared with
    its catalog line, and left out if it differs. `show` is called with the bytes done and in total.
    With `is_by_version` they are not read: the versions of their objects are recorded, and what has
    none is copied. Raises BACKUP_EXISTS, BACKUP_INSIDE, LINKS_IMPOSSIBLE, TOO_LITTLE_SPACE,
    BackupOvertaken, NO_VERSIONS, StoreUnavailable, PROGRAM_MISSING.
    """
    data_dir = services.settings.data_dir
    _check_absent(target)
    check_apart(target, data_dir)
    bucket = await versioned_bucket(services.lake) if is_by_version else None
    with part_of(target) as part:
        taken_at = services.clock()
        database = await copy_to(services, part)
        copier = _Copier(services, part, show, is_linked)
        objects, copied = await _record_objects(services, bucket, database.segments)
        copier.expect(database, copied)
        await copier.keep_database(database)
        for segment in copied:
            await copier.copy_segment(segment)
        for secret in secret_files(data_dir) if has_secrets else []:
            await copier.copy(FileCopy(secret, part / secret.name))
        rows = database.rows - sum(segment.rows for segment in copier.missing)
        manifest = make_manifest(
            database.schema,
            taken_at,
            rows,
            copier.kept,
            copier.missing,
            services.settings.segments_url if is_by_version else "",
            objects,
        )
        write_manifest(part, manifest)
        # Before the rename: the folder has its name only once all of it is durable.
        await run_uncancellable(sync_folders, part)
        _put_in_place(part, target)
    return manifest


async def _record_objects(
    services: OperatorServices, bucket: S3Segments | None, segments: Sequence[Segment]
) -> tuple[list[KeptObject], Sequence[Segment]]:
    """The objects of `segments` that `bucket` keeps by version, and the segments to copy."""
    if bucket is None:
        return [], segments
    async with services.store.read() as session:
        damaged = await list_damaged_ids(session)
        tiers = {org.id: org.tier for org in await list_orgs(session) if org.held_since is None}
    return await record_versions(bucket, segments, damaged, tiers)


def _put_in_place(part: Path, target: Path) -> None:
    """Give the complete folder `part` its name, durably."""
    # Again: the name may have been taken meanwhile, and a rename replaces an empty folder.
    _check_absent(target)
    part.rename(target)
    fsync(target.parent)


def _check_absent(target: Path) -> None:
    if os.path.lexists(target):
        raise BACKUP_EXISTS(value=str(target))


@dataclass(eq=False)
class _Copier:
    """Fills the folder `part`; records the files it added and the segments that are missing."""

    _services: OperatorServices
    _part: Path
    _show: Callable[[int, int], None]
    _is_linked: bool
    _total: int = 0
    _done: int = 0
    kept: list[KeptFile] = field(default_factory=list)
    missing: list[MissingSegment] = field(default_factory=list)

    def expect(self, database: CopiedDatabase, segments: Sequence[Segment]) -> None:
        """Set the expected total, with `segments` to copy. Raises TOO_LITTLE_SPACE."""
        size = sum(segment.size + segment.index_size for segment in segments)
        self._total = size + database.size
        if not self._is_linked:
            check_room(self._part, size)

    async def keep_database(self, database: CopiedDatabase) -> None:
        """Add the database, which is already in the folder."""
        digest = await self._services.lake.run_in_thread(sha256_of, database.file)
        self._keep(database.file, database.size, digest)
        self._advance(database.size)

    async def copy_segment(self, segment: Segment) -> None:
        """Add the segment's file if it matches the catalog, else record it as missing.

        Raises BackupOvertaken.
        """
        source = segment.path(self._services.settings.audit_dir)
        copy = FileCopy(source, segment.path(self._part / AUDIT), is_link=self._is_linked)
        async with AsyncExitStack() as stack:
            fault = await self._fetch_fault(stack, segment)
            fault = fault or await self._fault_of(copy, segment)
            if fault is None:
                self._keep(copy.target, copy.size, copy.sha256)
                await self._copy_index(segment)
                return
        is_gone = fault is FaultKind.MISSING_FILE
        if is_gone and not await self._services.store.fetch(is_live, segment.segment_id):
            # It was merged or pruned since the catalog was copied, which lacks its successor: the
            # backup would lack its rows.
            raise BackupOvertaken(value=segment.segment_id)
        copy.target.unlink(missing_ok=True)
        self._total += copy.size - segment.size - segment.index_size
        self.missing.append(MissingSegment(self._name(copy.target), segment.rows, fault.value))

    async def _copy_index(self, segment: Segment) -> None:
        """Add the segment's index if it is intact; otherwise it is rebuilt after a restore."""
        source = segment.index_path(self._services.settings.audit_dir)
        copy = FileCopy(source, segment.index_path(self._part / AUDIT), is_link=self._is_linked)
        with suppress(SourceFault):
            with _link_faults(self._part):
                await self._run(copy)
            if (copy.size, copy.sha256) == (segment.index_size, segment.index_sha256):
                self._keep(copy.target, copy.size, copy.sha256)
                return
        copy.target.unlink(missing_ok=True)

    async def _fetch_fault(self, stack: AsyncExitStack, segment: Segment) -> FaultKind | None:
        """Make the segment's files local until `stack` ends; returns what is wrong, or None."""
        try:
            await stack.enter_async_context(self._services.lake.local(segment))
        except ObjectMissing:
            return FaultKind.MISSING_FILE
        except ObjectDamaged:
            return FaultKind.WRONG_SHA256
        return None

    async def _fault_of(self, copy: FileCopy, segment: Segment) -> FaultKind | None:
        """Copy the segment's file; returns its fault, or None."""
        try:
            with _link_faults(self._part):
                await self._run(copy)
        except SourceFault as error:
            return FaultKind.MISSING_FILE if error.errno == errno.ENOENT else FaultKind.UNREADABLE
        if copy.size != segment.size:
            return FaultKind.WRONG_SIZE
        return None if segment.sha256 in {"", copy.sha256} else FaultKind.WRONG_SHA256

    async def copy(self, copy: FileCopy) -> None:
        """Add one file."""
        await self._run(copy)
        self._keep(copy.target, copy.size, copy.sha256)

    async def _run(self, copy: FileCopy) -> None:
        async for size in self._services.lake.iterate_in_thread(copy):
            self._advance(size)

    def _keep(self, path: Path, size: int, sha256: str) -> None:
        self.kept.append(KeptFile(self._name(path), size, sha256))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._part).as_posix()

    def _advance(self, size: int) -> None:
        self._done += size
        self._show(self._done, max(self._done, self._total))


@contextmanager
def _link_faults(part: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LINKS or error.filename2 is None:
            raise
        raise LINKS_IMPOSSIBLE(value=str(part.parent)) from error
