"""Segments in a bucket, and copies of those that are read in a folder.

An object has the key that the file has as a path below the audit folder. It is written once, whole,
under a name that no other has, and is never changed; only an index, which is derived, is replaced.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from analytics.model.errors import StoreFault
from analytics.storage.audit_files import TABLE_LOG, is_swept, list_missing
from analytics.storage.cache_folder import CachedFile, CacheFolder, CacheObserver
from analytics.storage.file_copy import sha256_of
from analytics.storage.import_claims import OWN, ImportClaim, ImportClaims
from analytics.storage.layout import CHECKPOINTS
from analytics.storage.object_fetcher import FETCHES_MAX, ObjectFetcher, check_content
from analytics.storage.object_lock import ObjectLocks, RequestRefused
from analytics.storage.objects import ObjectEntry, Objects
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import (
    Claim,
    ObjectDamaged,
    ObjectMissing,
    StoredFile,
    Write,
)
from analytics.storage.segment_writer import NewSegment, write_segments
from analytics.storage.verified_files import (
    REMEDY,
    DamagedFile,
    ExpectedFile,
    WrongSize,
    index_file,
    no_wait,
    rows_file,
    verify_file,
)

_OTHERS = (f"{OWN}/", f"{CHECKPOINTS}/")
"""What the keys of our objects begin with that are no files of segments."""


@dataclass(frozen=True, slots=True)
class SegmentLock:
    """The lock on the object of a segment: its end, None for none; and a change of its legal hold.

    `is_held` is None if that stays as it is.
    """

    segment: Segment
    until: datetime | None
    is_held: bool | None = None


class S3Segments:
    """See SegmentStore. `objects` are the segments, `cache` has copies of them."""

    is_local = False

    def __init__(
        self,
        objects: Objects,
        cache: CacheFolder,
        observer: CacheObserver,
        locks: ObjectLocks | None = None,
    ) -> None:
        """With `locks` objects can be locked, in a bucket that was created for it."""
        self.root = cache.root
        self.locks = locks
        self._objects = objects
        self._cache = cache
        self._fetcher = ObjectFetcher(objects, cache, observer)
        self._claims = ImportClaims(objects)

    @contextmanager
    def local(
        self, segments: Iterable[Segment], on_read: Callable[[int], object] = no_wait
    ) -> Iterator[None]:
        """See SegmentStore. What is missing or damaged is fetched, FETCHES_MAX at a time."""
        wanted = list(segments)
        files = [rows_file(self.root, segment) for segment in wanted]
        with self._cache.pinned(segment.segment_id for segment in wanted):
            self._fetcher.fetch_missing(files)
            with self._cache.verified.unchanged(files, on_read):
                yield

    @contextmanager
    def local_index(self, segment: Segment) -> Iterator[None]:
        """See SegmentStore."""
        with self._cache.pinned([segment.segment_id]):
            self._fetcher.fetch_missing(self._indexes_of([segment]))
            yield

    def fetch_ahead(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        for segment in segments:
            self._fetcher.fetch_ahead(segment.segment_id, rows_file(self.root, segment))

    def fetch_indexes(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        with self._cache.pinned(segment.segment_id for segment in segments):
            self._fetcher.fetch_missing(self._indexes_of(segments))

    def check_present(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore. A copy will do; others are looked for in the bucket."""
        absent = list_missing(self.root, segments)
        sizes = self._sizes_of(absent)
        for segment in absent:
            key = self._key(segment.path(self.root))
            if key not in sizes:
                raise ObjectMissing(f"{key}: the object is missing")
            if sizes[key] != segment.size:
                raise ObjectDamaged(f"{key}: {sizes[key]} bytes instead of {segment.size}")

    def list_missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """See SegmentStore. Copies do not count."""
        sizes = self._sizes_of(segments)
        missing = [s for s in segments if sizes.get(self._key(s.path(self.root))) != s.size]
        if len(segments) <= FETCHES_MAX:
            return missing
        # Looked up one by one: a list may lack an object that is there.
        sizes = self._found_sizes(missing)
        return [s for s in missing if sizes.get(self._key(s.path(self.root))) != s.size]

    @contextmanager
    def as_stored(self, segment: Segment) -> Iterator[Path]:
        """See SegmentStore. The objects are fetched, never copies; larger ones are cut."""
        with self._cache.work_folder() as folder:
            # An index that the catalog has no size of is smaller than its rows, or not used.
            sizes = (segment.size, segment.index_size or segment.size)
            for path, size in zip(
                (segment.path(folder), segment.index_path(folder)), sizes, strict=True
            ):
                path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(ObjectMissing):
                    self._objects.download(self._key(path, folder), path, size)
            yield folder

    def verify(self, file: ExpectedFile, on_read: Callable[[int], object]) -> None:
        """See SegmentStore. `on_read` is told of all bytes at the end, and before of steps of 0.

        A pause within the answer could outlast the time that the request has.
        """
        key = self._key(file.path)
        size, sha256 = self._objects.measure(key, file.size, on_read=lambda _: on_read(0))
        on_read(size)
        if size != file.size:
            said = f"{size} bytes" if size < file.size else "more bytes"
            raise WrongSize(f"{key}: {said} instead of {file.size}: {REMEDY}")
        check_content(key, file, size, sha256)

    def put(self, write: Write) -> Segment:
        """See SegmentStore. The files become copies: they are likely to be read soon."""
        return self._cache.with_room(lambda: self._put(write))

    def _put(self, write: Write) -> Segment:
        with self._cache.work_folder() as folder:
            segment = write(folder)
            path, index = segment.path(folder), segment.index_path(folder)
            # Both objects are durable before this returns: only then may the catalog name them.
            self._create(self._key(path, folder), path, segment.sha256)
            self._objects.replace(self._key(index, folder), index)
            self._take(folder, [path, index])
        return segment

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """See SegmentStore. One by one: the cache may not have room for more."""
        return [self._put_rows(new) for new in segments]

    def _put_rows(self, new: NewSegment) -> Segment:
        return self.put(lambda folder: write_segments(folder, [new])[0])

    def restore(self, segment: Segment, source: Path) -> None:
        """See SegmentStore. A damaged object is replaced in one request; a copy is dropped."""
        path = segment.path(self.root)
        if not self._objects.create(self._key(path), source):
            self._objects.replace(self._key(path), source)
        self._cache.remove(path)

    def put_index(self, write: Write) -> Segment:
        """See SegmentStore."""
        return self._cache.with_room(lambda: self._put_index(write))

    def _put_index(self, write: Write) -> Segment:
        with self._cache.work_folder() as folder:
            segment = write(folder)
            path = segment.index_path(folder)
            self._objects.replace(self._key(path, folder), path)
            self._take(folder, [path])
        return segment

    def upload(self, segment: Segment) -> bool:
        """Store the files of a local `segment` that has no object yet; False if it has one.

        An existing object is compared with the catalog: by its size, and by its digest unless the
        local file is a copy.

        For data dirs that had no bucket before. Raises ObjectMissing if there is neither a local
        file nor an object, ObjectDamaged if one of them is not what the catalog says.
        """
        path, index = segment.path(self.root), segment.index_path(self.root)
        key = self._key(path)
        stored = self._objects.find(key)
        if stored is not None and stored.size != segment.size:
            raise ObjectDamaged(f"{key}: {stored.size} bytes instead of {segment.size}")
        if not path.exists():
            if stored is None:
                raise ObjectMissing(f"{path}: neither the file is there nor its object")
            return False
        # Its mode alone says nothing of this bucket: it may be a copy of another one's object.
        if stored is not None and self._cache.is_copy(path):
            return False
        check_content(
            str(path), rows_file(self.root, segment), path.stat().st_size, sha256_of(path)
        )
        if index.exists():
            self._objects.replace(self._key(index), index)
            self._cache.keep(index)
        self._create(key, path, segment.sha256 or sha256_of(path))
        # Only now that its object is stored may the file be dropped.
        self._cache.keep(path)
        return stored is None

    def keeps_versions(self) -> bool:
        """See `Objects.keeps_versions`."""
        return self._objects.keeps_versions()

    def find_objects(self, paths: Sequence[Path]) -> list[ObjectEntry | None]:
        """The object of each file at `paths`, with its version, or None."""
        return list(self._fetcher.map(self._objects.find, map(self._key, paths)))

    def delete(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore. Copies of other machines are dropped by `drop_copies`."""
        paths = [p for s in segments for p in (s.path(self.root), s.index_path(self.root))]
        self._objects.delete([self._key(path) for path in paths])
        for path in paths:
            self._cache.remove(path)
            path.unlink(missing_ok=True)

    def set_locks(
        self, wanted: Sequence[SegmentLock], now: datetime
    ) -> list[SegmentLock | StoreFault]:
        """Lock the objects of segments as `wanted`, several at a time; what then is, or why not.

        A lock that ends later is left as it is, and none is begun that would have ended by `now`.
        """
        locks = self.locks
        if locks is None:
            return []

        def set_lock(lock: SegmentLock) -> SegmentLock | StoreFault:
            key, until = self._key(lock.segment.path(self.root)), lock.until
            try:
                if until is not None and until > now:
                    until = locks.extend(key, until)
                if lock.is_held is not None:
                    locks.hold(key, is_held=lock.is_held)
            except StoreFault as fault:
                return fault
            return replace(lock, until=until)

        return list(self._fetcher.map(set_lock, wanted))

    def remove_versions(self, segments: Sequence[Segment]) -> list[Segment]:
        """Remove all versions of the files of `segments`, which were locked; returns those left.

        Their locks may have been extended since, or the store's clock may be behind.
        """
        locks = self.locks
        if locks is None:
            return []

        def is_left(segment: Segment) -> bool:
            path = self._key(segment.path(self.root).with_suffix(""))
            try:
                for key, version in locks.versions(f"{path}."):
                    locks.remove(key, version)
            except RequestRefused:
                return True
            return False

        left = self._fetcher.map(is_left, segments)
        return [segment for segment, is_kept in zip(segments, left, strict=True) if is_kept]

    def put_locked(self, key: str, content: bytes, until: datetime) -> bool:
        """Store a small new object, locked until then where objects are; False if there is one."""
        if self.locks is None:
            return self._objects.create_small(key, content)
        return self.locks.create(key, content, until) is not None

    def read_object(self, key: str) -> bytes:
        """The contents of a small object. Raises ObjectMissing."""
        return self._objects.read(key)

    def list_keys(self, folder: str, after: str | None = None) -> Iterator[str]:
        """The keys below `folder` (without its slash) that sort after `after`, in order."""
        return (entry.key for entry in self._objects.entries(folder, after))

    def list_files(self, tenant_id: str | None = None) -> list[StoredFile]:
        """See SegmentStore."""
        folder = f"tenant={tenant_id}" if tenant_id else ""
        return [
            StoredFile(self.root / entry.key, entry.size, entry.written_s)
            for entry in self._objects.entries(folder)
            if not entry.key.startswith(_OTHERS) and f"{TABLE_LOG}/" not in entry.key
        ]

    def is_there(self, path: Path) -> bool:
        """See SegmentStore."""
        return self._objects.find(self._key(path)) is not None

    def clock_s(self, now_s: float) -> float:
        """See SegmentStore. By our clock, which may be ahead, young objects would look old."""
        return self._objects.now_s()

    def claimed(self, grace_s: float) -> set[str]:
        """See SegmentStore."""
        return self._claims.claimed(grace_s)

    def remove_orphans(
        self,
        files: Sequence[StoredFile],
        known: Collection[str],
        now_s: float,
        grace_s: float,
    ) -> int:
        """See SegmentStore."""
        unknown = [file for file in files if is_swept(self.root, file.path, known)]
        keys = [self._key(file.path) for file in unknown if now_s - file.written_s > grace_s]
        self._objects.delete(keys)
        return len(keys)

    def claim(self, grace_s: float) -> Claim:
        """See SegmentStore."""
        return ImportClaim(self, self._objects, grace_s)

    def copies(self) -> list[CachedFile]:
        """See SegmentStore."""
        return self._cache.copies()

    def drop_copies(self, copies: Sequence[CachedFile], known: Collection[str]) -> int:
        """See SegmentStore."""
        return self._cache.drop([copy for copy in copies if copy.path.stem not in known])

    def verify_copy(
        self, copy: CachedFile, segment: Segment, on_read: Callable[[int], object]
    ) -> bool:
        """See SegmentStore."""
        is_index = copy.path.suffix == ".index"
        try:
            verify_file((index_file if is_index else rows_file)(self.root, segment), on_read)
        except DamagedFile:
            self._cache.remove(copy.path)
            return False
        except StoreFault as fault:
            if not isinstance(fault.__cause__, FileNotFoundError):  # dropped meanwhile
                raise
        return True

    def close(self) -> None:
        """See SegmentStore."""
        self._fetcher.close()
        self._cache.close()

    def _create(self, key: str, path: Path, sha256: str) -> None:
        """Store a new object. An existing one with the same bytes is ours: it was sent twice."""
        size = path.stat().st_size
        if not self._objects.create(key, path) and self._objects.digest(key, size) != sha256:
            raise ObjectDamaged(f"{key}: another object has this name")
        # Something else than the object store may have answered, and the rows are then nowhere.
        stored = self._objects.find(key)
        if stored is None or stored.size != size:
            raise ObjectMissing(f"{key}: it was sent, but is not stored as it was sent")

    def _take(self, folder: Path, paths: Sequence[Path]) -> None:
        """Make copies of the stored files in a work folder, if there is room for them."""
        for path in paths:
            with suppress(OSError):
                self._cache.add(path, self.root / path.relative_to(folder))

    def _sizes_of(self, segments: Sequence[Segment]) -> dict[str, int]:
        """Sizes by key of those objects of `segments` that exist, and perhaps of others."""
        if len(segments) > FETCHES_MAX:
            return self._listed_sizes(segments)
        return self._found_sizes(segments)

    def _found_sizes(self, segments: Sequence[Segment]) -> dict[str, int]:
        """As `_sizes_of`, asked for one by one."""
        keys = [self._key(segment.path(self.root)) for segment in segments]
        found = self._fetcher.map(self._objects.find, keys)
        return {entry.key: entry.size for entry in found if entry is not None}

    def _listed_sizes(self, segments: Sequence[Segment]) -> dict[str, int]:
        """The sizes of all objects of the tenants from the first to the last day of `segments`."""
        sizes: dict[str, int] = {}
        for tenant_id in {segment.tenant_id for segment in segments}:
            days = [segment.day for segment in segments if segment.tenant_id == tenant_id]
            folder = f"tenant={tenant_id}"
            last = f"{folder}/day={max(days)}/~"
            # A name within the day's folder: after the folder's own name some servers skip all of
            # it.
            for entry in self._objects.entries(folder, after=f"{folder}/day={min(days)}/seg"):
                if entry.key > last:
                    break
                sizes[entry.key] = entry.size
        return sizes

    def _indexes_of(self, segments: Iterable[Segment]) -> list[ExpectedFile]:
        return [index_file(self.root, segment) for segment in segments if segment.index_size]

    def _key(self, path: Path, folder: Path | None = None) -> str:
        return path.relative_to(folder or self.root).as_posix()
