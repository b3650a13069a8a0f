"""Operations on the files of tables' metadata that the formats' own libraries lack."""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar

from analytics.storage.fsync import fsync, mkdir_synced

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
        ...

    def sync(self, uris: Iterable[str]) -> None:
        """Make new files and their names durable. Raises FileNotFoundError if one is not there."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in `folder`; an empty list only if there certainly are none."""
        ...

    def get(self, uri: str) -> bytes:
        """The content of the file `uri`. Raises FileNotFoundError."""
        ...

    def read(self, uri: str) -> bytes | None:
        """The content of the file `uri`; None if it is not there."""
        ...

    def write_atomically(self, uri: str, content: bytes) -> None:
        """Replace the file `uri`: readers meet the old content or the new one."""
        ...

    def delete(self, uri: str) -> None:
        """Remove the file `uri`, if it is there."""
        ...

    def remove_old(self, folder: str, kept: Collection[str], before: datetime) -> int:
        """Remove the files of `folder` that are not `kept`, last written before `before`."""
        ...

    def remove_folder(self, uri: str) -> None:
        """Remove the folder `uri` with all that is in it, if it is there."""
        ...


class LocalMetadataFiles:
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

    def read(self, uri: str) -> bytes | None:
        """See `MetadataFiles`."""
        try:
            return self.get(uri)
        except FileNotFoundError:
            return None

    def write_atomically(self, uri: str, content: bytes) -> None:
        """See `MetadataFiles`."""
        path = local_path(uri)
        pending = path.with_name(f".{path.name}.pending")
        pending.write_bytes(content)
        # Before the rename: otherwise power loss could leave the name with none of the bytes.
        fsync(pending)
        pending.rename(path)
        fsync(path.parent)

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
