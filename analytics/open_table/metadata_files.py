"""The files of tables' own metadata: what the formats' libraries do not do with them themselves."""

import shutil
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from analytics.storage.fsync import fsync, mkdir_synced

_SCHEME: Final = "file://"


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
        """Make new files and their names durable."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in `folder`; none if it is not there."""
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
        for path in paths:
            fsync(path)
        for folder in sorted({path.parent for path in paths}):
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


def local_path(uri: str) -> Path:
    """The path of a URI that `file_uri` made."""
    return Path(uri.removeprefix(_SCHEME))


def file_uri(path: Path) -> str:
    """The URI of `path` as Iceberg has it: nothing in it is quoted."""
    return f"{_SCHEME}{path}"
