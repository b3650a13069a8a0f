"""Segments in a bucket, and copies of those that are read in a folder.

An object has the key that the file has as a path below the audit folder. It is written once, whole,
under a name that no other has, and is never changed; only an index, which is derived, is replaced.
"""

import errno
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Final, TypeVar

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.audit_files import TABLE_LOG, is_swept
from analytics.storage.cache_folder import CachedFile, CacheFolder, CacheObserver
from analytics.storage.file_copy import sha256_of
from analytics.storage.objects import ListDamaged, ObjectEntry, Objects
from analytics.storage.prefix_owner import OWNER
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import (
    Claim,
    ObjectDamaged,
    ObjectMissing,
    Overtaken,
    StoredFile,
    Write,
    awake_s,
)

_Result = TypeVar("_Result")

FETCHES_MAX: Final = 16
"""How many objects are fetched at a time."""

AHEAD_PART: Final = 4
"""What is fetched ahead takes at most this part of the cache: else it would displace itself."""

DELETED_MAX: Final = 1_000
"""Objects in one request to delete them."""

OWN: Final = "_countersign"
CLAIMS: Final = f"{OWN}/claims"
RENEWALS: Final = 4
"""How often a claim is renewed within the grace of orphans."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a segment, and what the catalog says of it ("" for a digest: nothing)."""

    path: Path
    size: int
    sha256: str


class S3Segments:
    """See SegmentStore. `objects` are the segments, `cache` has copies of them."""

    is_local = False

    def __init__(self, objects: Objects, cache: CacheFolder, observer: CacheObserver) -> None:
        self.root = cache.root
        self._objects = objects
        self._cache = cache
        self._observer = observer
        self._threads = ThreadPoolExecutor(FETCHES_MAX, "fetch")
        self._ahead: dict[Path, int] = {}
        self._lock = Lock()

    def address_of(self, segment: Segment) -> str:
        """See SegmentStore."""
        return self._objects.url_of(self._key(segment.path(self.root)))

    @contextmanager
    def local(self, segments: Iterable[Segment]) -> Iterator[None]:
        """See SegmentStore. What is missing is fetched, FETCHES_MAX at a time."""
        wanted = list(segments)
        with self._cache.pinned(segment.segment_id for segment in wanted):
            self._fetch_missing([self._rows_of(segment) for segment in wanted])
            yield

    @contextmanager
    def local_index(self, segment: Segment) -> Iterator[None]:
        """See SegmentStore."""
        with self._cache.pinned([segment.segment_id]):
            self._fetch_missing(self._indexes_of([segment]))
            yield

    def fetch_ahead(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        for segment in segments:
            file = self._rows_of(segment)
            with self._lock:
                size = sum(self._ahead.values()) + file.size
                if file.path in self._ahead or size > self._cache.bytes_max // AHEAD_PART:
                    continue
                if file.path.exists():
                    continue
                self._ahead[file.path] = file.size
            self._begin(self._fetch_quietly, segment.segment_id, file)

    def fetch_indexes(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        with self._cache.pinned(segment.segment_id for segment in segments):
            self._fetch_missing(self._indexes_of(segments))

    def check_present(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore. A copy will do; others are looked for in the bucket."""
        absent = [s for s in segments if not _has_size(s.path(self.root), s.size)]
        sizes = self._sizes_of(absent)
        for segment in absent:
            key = self._key(segment.path(self.root))
            if key not in sizes:
                raise ObjectMissing(f"{key}: the object is missing")
            if sizes[key] != segment.size:
                raise ObjectDamaged(f"{key}: {sizes[key]} bytes instead of {segment.size}")

    def list_missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """See SegmentStore. Copies are not asked."""
        sizes = self._sizes_of(segments)
        missing = [s for s in segments if sizes.get(self._key(s.path(self.root))) != s.size]
        if len(segments) <= FETCHES_MAX:
            return missing
        # Asked for one by one: a list may be wrong.
        sizes = self._found_sizes(missing)
        return [s for s in missing if sizes.get(self._key(s.path(self.root))) != s.size]

    @contextmanager
    def as_stored(self, segment: Segment) -> Iterator[Path]:
        """See SegmentStore. The objects are fetched, past all copies; larger ones are cut."""
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

    def put(self, write: Write) -> Segment:
        """See SegmentStore. The files become copies: they are likely to be read soon."""
        return self._with_room(lambda: self._put(write))

    def _put(self, write: Write) -> Segment:
        with self._cache.work_folder() as folder:
            segment = write(folder)
            path, index = segment.path(folder), segment.index_path(folder)
            self._create(self._key(path, folder), path, segment.sha256)
            self._objects.replace(self._key(index, folder), index)
            self._take(folder, [path, index])
        return segment

    def put_index(self, write: Write) -> Segment:
        """See SegmentStore."""
        return self._with_room(lambda: self._put_index(write))

    def _put_index(self, write: Write) -> Segment:
        with self._cache.work_folder() as folder:
            segment = write(folder)
            path = segment.index_path(folder)
            self._objects.replace(self._key(path, folder), path)
            self._take(folder, [path])
        return segment

    def upload(self, segment: Segment) -> bool:
        """Store the files of a local `segment` that has no object yet; False if it has one.

        The object that is there is compared with the catalog: by its size, and by its digest unless
        the local file is a copy.

        For data dirs that had no bucket before. Raises ObjectMissing without a local file,
        ObjectDamaged if that, or an object that is there, is not what the catalog says.
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
        _check(str(path), self._rows_of(segment), path.stat().st_size, sha256_of(path))
        if index.exists():
            self._objects.replace(self._key(index), index)
            self._cache.keep(index)
        self._create(key, path, segment.sha256 or sha256_of(path))
        self._cache.keep(path)
        return stored is None

    def keeps_versions(self) -> bool:
        """See `Objects.keeps_versions`."""
        return self._objects.keeps_versions()

    def find_objects(self, paths: Sequence[Path]) -> list[ObjectEntry | None]:
        """The object of each file at `paths`, with its version, or None."""
        return list(self._threads.map(self._objects.find, map(self._key, paths)))

    def delete(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore. Copies of other machines are dropped by `drop_copies`."""
        paths = [p for s in segments for p in (s.path(self.root), s.index_path(self.root))]
        self._delete([self._key(path) for path in paths])
        for path in paths:
            self._cache.remove(path)
            path.unlink(missing_ok=True)

    def list_files(self, tenant_id: str | None = None) -> list[StoredFile]:
        """See SegmentStore."""
        folder = f"tenant={tenant_id}" if tenant_id else ""
        return [
            StoredFile(self.root / entry.key, entry.size, entry.written_s)
            for entry in self._objects.entries(folder)
            if not entry.key.startswith("_countersign/") and f"{TABLE_LOG}/" not in entry.key
        ]

    def is_there(self, path: Path) -> bool:
        """See SegmentStore."""
        return self._objects.find(self._key(path)) is not None

    def claimed(self, grace_s: float) -> set[str]:
        """See SegmentStore. Claims that ended long ago are removed."""
        claims = self._list_claims()
        if not claims:
            return set()
        # Asked before they are listed: a claim that is renewed meanwhile must not look old.
        now_s = self._objects.now_s()
        ids: set[str] = set()
        ended, missing = [], set[str]()
        for claim in self._list_claims():
            if now_s - claim.written_s > grace_s:
                ended.append(claim.key)
                continue
            try:
                ids |= _listed_ids(claim.key, self._objects.read(claim.key))
            except ObjectMissing:
                missing.add(claim.key)
        # Those ended meanwhile, after their commits; else the server is wrong about them.
        if missing and missing & {claim.key for claim in self._list_claims()}:
            raise ObjectMissing(f"{min(missing)}: the object is listed and missing")
        self._delete(ended)
        return ids

    def _list_claims(self) -> list[ObjectEntry]:
        """All claims. Raises ListDamaged for a list without the object that is behind them."""
        claims: list[ObjectEntry] = []
        for entry in self._objects.entries(OWN):
            if entry.key == OWNER:
                return claims
            if entry.key.startswith(f"{CLAIMS}/"):
                claims.append(entry)
        raise ListDamaged(f"{OWNER} is not in the list: it is not whole, or has no owner")

    def remove_orphans(
        self,
        files: Sequence[StoredFile],
        known: Collection[str],
        now_s: float,
        grace_s: float,
    ) -> int:
        """See SegmentStore. Ages are those by the clock of the object store."""
        unknown = [file for file in files if is_swept(self.root, file.path, known)]
        if not unknown:
            return 0
        now_s = self._objects.now_s()
        keys = [self._key(file.path) for file in unknown if now_s - file.written_s > grace_s]
        self._delete(keys)
        return len(keys)

    def claim(self, grace_s: float) -> Claim:
        """See SegmentStore."""
        return _ListedSegments(self, self._objects, grace_s)

    def copies(self) -> list[CachedFile]:
        """See SegmentStore."""
        return self._cache.copies()

    def drop_copies(self, copies: Sequence[CachedFile], known: Collection[str]) -> int:
        """See SegmentStore."""
        return self._cache.drop([copy for copy in copies if copy.path.stem not in known])

    def close(self) -> None:
        """See SegmentStore."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._cache.close()

    def _fetch_missing(self, files: Sequence[_File]) -> None:
        """Fetch those of the pinned `files` that are not there."""
        missing = [file for file in files if not self._holds(file)]
        self._observer.hit(len(files) - len(missing))
        if len(missing) < 2:
            for file in missing:
                self._fetch(file)
            return
        coming: list[Future[None]] = []
        try:
            coming += (self._begin(self._fetch, file) for file in missing)
            for fetched in coming:
                fetched.result()
        finally:
            _cancel(coming)

    def _holds(self, file: _File) -> bool:
        # An index has its own checksums, and one that was replaced is as good.
        digest = "" if file.path.suffix == ".index" else file.sha256
        try:
            return self._cache.holds(file.path, file.size, digest)
        except OSError as error:
            raise StoreUnreachable(f"{file.path}: {error.strerror}") from error

    def _begin(self, function: Callable[..., None], *arguments: object) -> Future[None]:
        try:
            return self._threads.submit(function, *arguments)
        except RuntimeError as error:  # of a query that runs on while the process ends
            raise StoreUnreachable("the store of segments was closed") from error

    def _fetch_quietly(self, name: str, file: _File) -> None:
        try:
            with suppress(StoreFault), self._cache.pinned([name]):
                if not self._holds(file):
                    self._fetch(file)
        finally:
            with self._lock:
                self._ahead.pop(file.path, None)

    def _fetch(self, file: _File) -> None:
        """Bring the pinned `file` into the cache, unless another thread does so meanwhile."""
        try:
            with self._cache.fetching(file.path):
                if self._holds(file):
                    self._observer.hit(1)
                    return
                self._download(file)
        except ObjectMissing:
            if file.path.suffix != ".index":
                raise
        except OSError as error:
            raise StoreUnreachable(f"{file.path}: {error.strerror}") from error

    def _download(self, file: _File) -> None:
        began_at = time.monotonic()
        size = self._with_room(lambda: self._copy_of(file))
        if size is not None:
            self._observer.fetched(size, time.monotonic() - began_at)

    def _copy_of(self, file: _File) -> int | None:
        """Make a copy of the object; its bytes, or None for an index that is not the one wanted."""
        key = self._key(file.path)
        with self._cache.work_folder() as folder:
            target = folder / file.path.name
            size, sha256 = self._objects.download(key, target, file.size)
            if file.path.suffix == ".index" and (size, sha256) != (file.size, file.sha256):
                return None  # damaged, or just being replaced: it is rebuilt, and rows are read
            _check(key, file, size, sha256)
            self._cache.add(target, file.path)
        return size

    def _with_room(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, which fills a work folder; on a full disk it has a second attempt.

        The disk has less room than the setting says, so half of the copies are dropped before.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
        self._cache.drop_to(self._cache.used_bytes() // 2)
        return work()

    def _create(self, key: str, path: Path, sha256: str) -> None:
        """Store a new object. One that is there is ours if it has the same bytes: sent twice."""
        size = path.stat().st_size
        if not self._objects.create(key, path) and self._objects.digest(key, size) != sha256:
            raise ObjectDamaged(f"{key}: another object has this name")
        stored = self._objects.find(key)
        if stored is None or stored.size != size:
            raise ObjectMissing(f"{key}: it was sent, but is not stored as it was sent")

    def _take(self, folder: Path, paths: Sequence[Path]) -> None:
        """Make copies of stored files of a work folder; without room for them they are not."""
        for path in paths:
            with suppress(OSError):
                self._cache.add(path, self.root / path.relative_to(folder))

    def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETED_MAX):
            self._objects.delete(keys[start : start + DELETED_MAX])

    def _sizes_of(self, segments: Sequence[Segment]) -> dict[str, int]:
        """Sizes of the objects of `segments`, and of others, by key, as far as they are there."""
        if len(segments) > FETCHES_MAX:
            return self._listed_sizes(segments)
        return self._found_sizes(segments)

    def _found_sizes(self, segments: Sequence[Segment]) -> dict[str, int]:
        """As `_sizes_of`, asked for one by one."""
        keys = [self._key(segment.path(self.root)) for segment in segments]
        found = self._threads.map(self._objects.find, keys)
        return {entry.key: entry.size for entry in found if entry is not None}

    def _listed_sizes(self, segments: Sequence[Segment]) -> dict[str, int]:
        """The sizes of all objects of the tenants from the first to the last day of `segments`."""
        sizes: dict[str, int] = {}
        for tenant_id in {segment.tenant_id for segment in segments}:
            days = [segment.day for segment in segments if segment.tenant_id == tenant_id]
            folder = f"tenant={tenant_id}"
            last = f"{folder}/day={max(days)}/~"
            # Behind a name in the folder: some servers take the folder's own for all that is in it.
            for entry in self._objects.entries(folder, after=f"{folder}/day={min(days)}/seg"):
                if entry.key > last:
                    break
                sizes[entry.key] = entry.size
        return sizes

    def _rows_of(self, segment: Segment) -> _File:
        return _File(segment.path(self.root), segment.size, segment.sha256)

    def _indexes_of(self, segments: Iterable[Segment]) -> list[_File]:
        return [
            _File(segment.index_path(self.root), segment.index_size, segment.index_sha256)
            for segment in segments
            if segment.index_size
        ]

    def _key(self, path: Path, folder: Path | None = None) -> str:
        return path.relative_to(folder or self.root).as_posix()


class _ListedSegments:
    """A claim: an object that lists the ids of segments, and is written again to renew it.

    A sweep keeps them while the object was written within the grace, by the clock of the store. So
    after half a grace without renewal, by a clock that no one sets, the claim is given up: what a
    sweep may have taken for orphans is not named any more, however long anything was paused.
    """

    def __init__(self, segments: S3Segments, objects: Objects, grace_s: float) -> None:
        self._segments = segments
        self._objects = objects
        self._grace_s = grace_s
        self._key = f"{CLAIMS}/{token_hex(16)}.json"
        self._ids: list[str] = []
        self._renewed_s = awake_s()

    def put(self, write: Write) -> Segment:
        """See Claim."""
        if not self._ids:
            self._renewed_s = awake_s()
        segment = self._segments.put(write)
        self._ids.append(segment.segment_id)
        # The object itself is young: the list may follow a little later.
        if awake_s() - self._renewed_s > self._grace_s / RENEWALS:
            self._renew()
        return segment

    def renew(self, segments: Sequence[Segment], now_s: float) -> None:
        """See Claim."""
        if self._ids:
            self._renew()

    def remove(self, segments: Sequence[Segment]) -> None:
        """See Claim."""
        self._segments.delete(segments)

    def release(self) -> None:
        """See Claim."""
        with suppress(StoreFault):  # it ends by itself
            self._objects.delete([self._key])

    def _renew(self) -> None:
        began_s = awake_s()
        if began_s - self._renewed_s > self._grace_s / 2:
            raise Overtaken
        self._objects.write(self._key, json.dumps(self._ids).encode())
        self._renewed_s = began_s


def _check(name: str, file: _File, size: int, sha256: str) -> None:
    """Raise ObjectDamaged unless the bytes are those that the catalog says."""
    if size != file.size:
        stated = f"{size} bytes" if size < file.size else "more bytes"
        raise ObjectDamaged(f"{name}: {stated} instead of {file.size}")
    if file.sha256 not in {"", sha256}:
        raise ObjectDamaged(f"{name}: its SHA-256 is {sha256} instead of {file.sha256}")


def _listed_ids(key: str, content: bytes) -> set[str]:
    """The ids that a claim lists. Raises ObjectDamaged: what it keeps must not be swept."""
    try:
        ids = json.loads(content)
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ObjectDamaged(f"{key}: it is no list of segments")
    return set(ids)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _cancel(coming: Sequence[Future[None]]) -> None:
    for fetched in coming:
        fetched.cancel()
