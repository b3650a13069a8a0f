"""The files of tables' own metadata in a bucket, through Arrow's file system for S3.

Credentials are those that AWS clients find: AWS_* variables, a web identity, or the machine's role.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyarrow import fs

from analytics.open_table.storage_faults import StorageFailed

_SCHEME: Final = "s3://"
_CONNECT_MAX_S: Final = 5.0

_PROBE: Final = "_countersign_probe"
"""A file that no reader of a table takes for one of its own."""


class S3MetadataFiles:
    """MetadataFiles in the buckets at `endpoint` ("": AWS itself). A URI is s3://bucket/key.

    A server that is silent for half of `wait_s` has failed; to delta-rs, one whose answer takes
    `wait_s`.
    """

    def __init__(self, endpoint: str, wait_s: float) -> None:
        half_s = wait_s / 2
        connect_s = min(half_s, _CONNECT_MAX_S)
        self._files = fs.S3FileSystem(
            endpoint_override=endpoint or None, request_timeout=half_s, connect_timeout=connect_s
        )
        self.iceberg_properties: Mapping[str, str] = {
            # Without a region pyiceberg asks AWS for that of the bucket, also if it is elsewhere.
            "s3.region": self._files.region,
            "s3.request-timeout": str(half_s),
            "s3.connect-timeout": str(connect_s),
        }
        self.delta_options: Mapping[str, str] = {
            # Of a whole request: delta-rs has no limit for silence alone.
            "timeout": f"{round(wait_s * 1000)}ms",
            "connect_timeout": f"{round(connect_s * 1000)}ms",
            "retry_timeout": f"{round(half_s * 1000)}ms",
        }
        if endpoint:
            self.iceberg_properties = {**self.iceberg_properties, "s3.endpoint": endpoint}
            self.delta_options = {
                **self.delta_options,
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

    def read(self, uri: str) -> bytes | None:
        """See `MetadataFiles`."""
        try:
            return self.get(uri)
        except FileNotFoundError:
            return None

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
    return uri.removeprefix(_SCHEME)
