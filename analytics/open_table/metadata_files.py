"""Operations on the files of tables' metadata that the formats' own libraries lack."""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar

from pyarrow import fs

from analytics.open_table.storage_faults import StorageFailed
from analytics.storage.fsync import fsync, mkdir_synced, write_synced

PARALLEL_MAX: Final = 16
"""How many files are written or fetched at a time."""

_SCHEME: Final = "file://"
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class MetadataFiles(Protocol):
    """The storage that tables are in. All methods raise OSError if it fails.

    Both mappings are its options for the libraries: pyiceberg's properties, delta-rs' options.
    """

    iceberg_properties: Mapping[str, str]
    delta_options: Mapping[str, str]

    def make_folder(self, uri: str) -> None:
        """Create the folder `uri`, durably."""

    def sync(self, uris: Iterable[str]) -> None:
        """Make new files and their names durable. Raises FileNotFoundError if one is not there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in `folder`; an empty list only if there certainly are none."""

    def get(self, uri: str) -> bytes:
        """The content of the file `uri`. Raises FileNotFoundError."""

    def read(self, uri: str) -> bytes | None:
        """The content of the file `uri`; None if it is not there."""
        try:
            return self.get(uri)
        except FileNotFoundError:
            return None

    def write_atomically(self, uri: str, content: bytes) -> None:
        """Replace the file `uri`: readers meet the old content or the new one."""

    def delete(self, uri: str) -> None:
        """Remove the file `uri`, if it is there."""

    def remove_old(self, folder: str, kept: Collection[str], before: datetime) -> int:
        """Remove the files of `folder` that are not `kept`, last written before `before`."""

    def remove_folder(self, uri: str) -> None:
        """Remove the folder `uri` with all that is in it, if it is there."""


class LocalMetadataFiles(MetadataFiles):
    """MetadataFiles below the folder `root` of this machine."""

    iceberg_properties: Mapping[str, str] = {}
    delta_options: Mapping[str, str] = {}

    def __init__(self, root: Path) -> None:
        self._root = root

    def make_folder(self, uri: str) -> None:
        """See `MetadataFiles`."""
        mkdir_synced(local_path(uri), within=self._root)

    def sync(self, uris: Iterable[str]) -> None:
        """See `MetadataFiles`."""
        paths = [local_path(uri) for uri in uris]
        in_parallel(fsync, paths)
        for folder in sorted({path.parent for path in paths}):
            # Contents first: a durable name must not stand for bytes that are not.
            fsync(folder)

    def names(self, folder: str) -> list[str]:
        """See `MetadataFiles`."""
        path = local_path(folder)
        return [file.name for file in path.iterdir()] if path.is_dir() else []

    def get(self, uri: str) -> bytes:
        """See `MetadataFiles`."""
        return local_path(uri).read_bytes()

    def write_atomically(self, uri: str, content: bytes) -> None:
        """See `MetadataFiles`."""
        write_synced(local_path(uri), content, 0o666)

    def delete(self, uri: str) -> None:
        """See `MetadataFiles`."""
        local_path(uri).unlink(missing_ok=True)

    def remove_old(self, folder: str, kept: Collection[str], before: datetime) -> int:
        """See `MetadataFiles`."""
        keep = {local_path(uri) for uri in kept}
        old = [
            path
            for path in local_path(folder).iterdir()
            if path not in keep and path.stat().st_mtime < before.timestamp()
        ]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def remove_folder(self, uri: str) -> None:
        """See `MetadataFiles`."""
        path = local_path(uri)
        if path.is_dir():
            shutil.rmtree(path)


def in_parallel(
    work: Callable[[_Argument], _Result], arguments: Iterable[_Argument]
) -> list[_Result]:
    """The results of `work`, which waits for a disk or a server, PARALLEL_MAX at a time."""
    with ThreadPoolExecutor(PARALLEL_MAX, "metadata") as threads:
        return list(threads.map(work, arguments))


def local_path(uri: str) -> Path:
    """The path of a URI that `file_uri` made."""
    return Path(uri.removeprefix(_SCHEME))


def file_uri(path: Path) -> str:
    """The URI of `path` as Iceberg has it: nothing in it is quoted."""
    return f"{_SCHEME}{path}"


_S3: Final = "s3://"
_CONNECT_MAX_S: Final = 5.0

_PROBE: Final = "_countersign_probe"
"""A file that no reader of a table takes for one of its own."""


class S3MetadataFiles(MetadataFiles):
    """MetadataFiles in the buckets at `endpoint` ("": AWS itself). A URI is s3://bucket/key.

    Through Arrow's file system for S3. Credentials are those that AWS clients find: AWS_*
    variables, a web identity, or the machine's role.
    A server that is silent for half of `wait_s` has failed; to delta-rs, one whose answer takes
    `wait_s`.
    """

    def __init__(self, endpoint: str, wait_s: float) -> None:
        half_s = wait_s / 2
        connect_s = min(half_s, _CONNECT_MAX_S)
        self._files = fs.S3FileSystem(
            endpoint_override=endpoint or None, request_timeout=half_s, connect_timeout=connect_s
        )
        self.iceberg_properties: dict[str, str] = {
            # Without a region pyiceberg asks AWS for that of the bucket, also if it is elsewhere.
            "s3.region": self._files.region,
            "s3.request-timeout": str(half_s),
            "s3.connect-timeout": str(connect_s),
        }
        self.delta_options: dict[str, str] = {
            # Of a whole request: delta-rs has no limit for silence alone.
            "timeout": f"{round(wait_s * 1000)}ms",
            "connect_timeout": f"{round(connect_s * 1000)}ms",
            "retry_timeout": f"{round(half_s * 1000)}ms",
        }
        if endpoint:
            self.iceberg_properties |= {"s3.endpoint": endpoint}
            self.delta_options |= {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
            }

    def make_folder(self, uri: str) -> None:
        """See `MetadataFiles`: a bucket has none."""

    def sync(self, uris: Iterable[str]) -> None:
        """See `MetadataFiles`: what is stored is durable, but something else may have answered."""
        for found in self._files.get_file_info([_key(uri) for uri in uris]):
            if not found.is_file:
                raise FileNotFoundError(f"{found.path} is not there after it was written")

    def names(self, folder: str) -> list[str]:
        """See `MetadataFiles`.

        A server that is not the object store can seem to have an empty folder, too. So an empty
        list is believed only if the next one has a file that was put there.
        """
        names = self._names(folder)
        if names:
            return names
        probe = f"{folder}/{_PROBE}"
        self.write_atomically(probe, b"")
        names = self._names(folder)
        if _PROBE not in names:
            raise StorageFailed(f"{folder}: the object store does not list what was stored in it")
        self.delete(probe)
        return [name for name in names if name != _PROBE]

    def get(self, uri: str) -> bytes:
        """See `MetadataFiles`."""
        with self._files.open_input_stream(_key(uri)) as stream:
            return bytes(stream.read())

    def write_atomically(self, uri: str, content: bytes) -> None:
        """See `MetadataFiles`."""
        with self._files.open_output_stream(_key(uri)) as stream:
            stream.write(content)

    def delete(self, uri: str) -> None:
        """See `MetadataFiles`."""
        if self.read(uri) is not None:
            self._files.delete_file(_key(uri))

    def remove_old(self, folder: str, kept: Collection[str], before: datetime) -> int:
        """See `MetadataFiles`, by the clock of the store."""
        keep = {_key(uri) for uri in kept}
        old = [
            found.path
            for found in self._list(folder)
            if found.path not in keep and found.mtime.astimezone(UTC) < before
        ]
        for path in old:
            self._files.delete_file(path)
        return len(old)

    def remove_folder(self, uri: str) -> None:
        """See `MetadataFiles`."""
        for found in self._list(uri):
            self._files.delete_file(found.path)

    def _names(self, folder: str) -> list[str]:
        return [str(found.base_name) for found in self._list(folder)]

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(_key(folder), allow_not_found=True)
        return [found for found in self._files.get_file_info(selector) if found.is_file]


def _key(uri: str) -> str:
    return uri.removeprefix(_S3)
