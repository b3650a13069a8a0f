"""Objects of one bucket below one prefix, through `obstore`: requests and their limits."""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.bucket_place import BucketPlace
from analytics.storage.object_client import CHUNK_BYTES, ObjectClients
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing
from analytics.storage.verified_files import no_wait

if TYPE_CHECKING:
    from obstore import GetOptions, PutResult

SMALL_BYTES_MAX: Final = 4 * 2**20
"""The largest object that is read as a whole into memory: what a claim lists."""

PUT_BYTES_MAX: Final = 5 * 2**30
"""The most that S3 takes in one request: only one request is all or nothing."""

LISTED_MAX: Final = 100_000_000
"""The most objects that a list may have: a server that repeats itself would never end."""

_NO_VERSION: Final = "null"
"""The id of an object that was stored while the bucket kept no versions: it can be replaced."""

_CLOCK: Final = "_countersign/clock"


class ListDamaged(StoreFault):
    """What the server answered is no list of the objects that were asked for."""


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object; `key` is relative to the prefix, `written_s` its last-modified.

    `version` is its id in a bucket that keeps versions, "" elsewhere and in lists.
    """

    key: str
    size: int
    written_s: float
    version: str = ""


class Objects:
    """The objects at `place`. Every method may raise StoreFault, within about `wait_s` seconds."""

    def __init__(self, place: BucketPlace, endpoint: str, wait_s: float) -> None:
        """`endpoint` is the address of the S3 API, "" for that of AWS or AWS_ENDPOINT_URL."""
        self._place = place
        self._clients = ObjectClients(place, endpoint, wait_s)

    def url_of(self, key: str) -> str:
        """The `s3://` URL of the object."""
        return "/".join(filter(None, ["s3:/", self._place.bucket, self._place.prefix, key]))

    def download(
        self, key: str, target: Path, bytes_max: int, version: str = ""
    ) -> tuple[int, str]:
        """Write the object, or that version of it, to the new file `target`; its size and SHA-256.

        Of an object larger than `bytes_max`, only one byte more than that is read and written.
        Raises ObjectMissing, OSError; then there is no file.
        """
        digest, size = hashlib.sha256(), 0
        try:
            with target.open("xb") as file:
                for content in self._chunks(key, bytes_max, version):
                    digest.update(content)
                    file.write(content)
                    size += len(content)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return size, digest.hexdigest()

    def digest(self, key: str, bytes_max: int, version: str = "") -> str:
        """The SHA-256 of the object, of which as much is read as by `download`.

        Raises ObjectMissing.
        """
        return self.measure(key, bytes_max, version)[1]

    def measure(
        self,
        key: str,
        bytes_max: int,
        version: str = "",
        on_read: Callable[[int], object] = no_wait,
    ) -> tuple[int, str]:
        """The size and SHA-256 of the object, of which as much is read as by `download`.

        `on_read` is told of the bytes of each step. Raises ObjectMissing.
        """
        digest, size = hashlib.sha256(), 0
        for content in self._chunks(key, bytes_max, version):
            digest.update(content)
            size += len(content)
            on_read(len(content))
        return size, digest.hexdigest()

    def read(self, key: str, bytes_max: int = SMALL_BYTES_MAX) -> bytes:
        """The contents of a small object. Raises ObjectMissing, ObjectDamaged if it is larger."""
        content = b"".join(self._chunks(key, bytes_max))
        if len(content) > bytes_max:
            raise ObjectDamaged(f"{key}: more than {bytes_max} bytes")
        return content

    def create(self, key: str, source: Path) -> bool:
        """Store the file `source` as a new object; False, changing nothing, if there is one.

        When this returns True, all of it is durable.
        """
        with _mapped(key, source) as content:
            return self.create_small(key, content)

    def create_small(self, key: str, content: bytes | mmap.mmap) -> bool:
        """As `create`, of what is in memory."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._put(key, content, "create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def replace(self, key: str, source: Path) -> None:
        """Store the file `source`, replacing an existing object."""
        with _mapped(key, source) as content:
            self._put(key, content, "overwrite")

    def write(self, key: str, content: bytes) -> None:
        """Store a small object, replacing an existing one."""
        self._put(key, content, "overwrite")

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no fault."""
        import obstore

        if keys:
            with self._clients.open(keys[0]) as client:
                obstore.delete(client, keys)

    def find(self, key: str, version: str = "") -> ObjectEntry | None:
        """The object, or that version of it, or None."""
        import obstore

        try:
            with self._clients.open(key) as client:
                if version:
                    options: GetOptions = {"version": version, "head": True}
                    return _entry(obstore.get(client, key, options=options).meta)
                return _entry(obstore.head(client, key))
        except ObjectMissing:
            return None

    def entries(self, folder: str = "", after: str | None = None) -> Iterator[ObjectEntry]:
        """The objects below `folder` (without its slash) whose keys sort after `after`.

        Raises ListDamaged for a list that cannot be one of `folder`, or has no end.
        """
        path = f"{folder}/" if folder else ""
        # The keys at places 1, 2, 4, 8, … are remembered in turn: a list that goes in circles, of
        # any length, meets one of them again.
        remembered, due = "", 1
        for number, entry in enumerate(self._listed(folder, after), 1):
            if not entry.key.startswith(path):
                raise ListDamaged(f"{path}: the list has objects of another folder")
            if entry.key == remembered or number > LISTED_MAX:
                raise ListDamaged(f"{path or 'the bucket'}: the list does not end")
            if number == due:
                remembered, due = entry.key, 2 * due
            yield entry

    def _listed(self, folder: str, after: str | None) -> Iterator[ObjectEntry]:
        import obstore

        name = folder or "the bucket"
        with self._clients.open(name) as client:
            chunks = iter(obstore.list(client, folder or None, offset=after))
        while True:
            with self._clients.open(name):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield from map(_entry, chunk)

    def now_s(self) -> float:
        """The clock of the store, in seconds since 1970; some give whole seconds.

        That is the time at which it says that a small object was written just now.
        """
        self.write(_CLOCK, b"")
        found = self.find(_CLOCK)
        if found is None:
            raise StoreUnreachable(f"{_CLOCK} is not there after it was written")
        return found.written_s

    def keeps_versions(self) -> bool:
        """Whether an object that is replaced or removed now can be read afterwards."""
        stored = self._put(_CLOCK, b"", "overwrite")
        return (stored["version"] or _NO_VERSION) != _NO_VERSION

    def _chunks(self, key: str, bytes_max: int, version: str = "") -> Iterator[bytes | memoryview]:
        """The object piece by piece: `bytes_max` bytes and one more at most."""
        import obstore

        with self._clients.open(key, download_bytes=bytes_max) as client:
            found = obstore.get(client, key, options=_of_version(version))
            chunks = found.stream(min_chunk_size=CHUNK_BYTES)
        # The one byte more tells callers that an object is too large; they read no further.
        left = bytes_max + 1
        while left:
            with self._clients.open(key):
                content = next(chunks, None)
            if content is None:
                return
            piece = memoryview(content)[:left]
            left -= len(piece)
            yield piece

    def _put(
        self, key: str, content: bytes | mmap.mmap, mode: Literal["create", "overwrite"]
    ) -> "PutResult":
        import obstore

        with self._clients.open(key, len(content)) as client:
            return obstore.put(client, key, content, mode=mode, use_multipart=False)


@contextmanager
def _mapped(key: str, source: Path) -> Iterator[mmap.mmap]:
    """The contents of a file to store as `key`, if they are not too many."""
    size = source.stat().st_size
    if size > PUT_BYTES_MAX:
        raise StoreFault(f"{key}: {size} bytes are more than S3 takes in one request")
    # Pages of the file, which the system may drop, and no copy of it in memory.
    with (
        source.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


def _entry(found: Any) -> ObjectEntry:  # noqa: ANN401 - a dict of obstore
    version = found["version"] or ""
    return ObjectEntry(
        found["path"],
        found["size"],
        found["last_modified"].timestamp(),
        "" if version == _NO_VERSION else version,
    )


def _of_version(version: str) -> "GetOptions | None":
    return {"version": version} if version else None
