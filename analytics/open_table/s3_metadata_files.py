"""The files of tables' own metadata in a bucket, through Arrow's file system for S3.

Credentials are those that AWS clients find: AWS_* variables, a web identity, or the machine's role.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pyarrow import fs

_SCHEME: Final = "s3://"


class S3MetadataFiles:
    """MetadataFiles in the buckets at `endpoint` ("": AWS itself). A URI is s3://bucket/key.

    An object is whole and durable once it is stored, so there is nothing to sync.
    """

    def __init__(self, endpoint: str = "") -> None:
        self._files = fs.S3FileSystem(endpoint_override=endpoint or None)
        # Without a region pyiceberg asks AWS for that of the bucket, also if it is elsewhere.
        self.iceberg_properties: Mapping[str, str] = {"s3.region": self._files.region}
        self.delta_options: Mapping[str, str] = {}
        if endpoint:
            self.iceberg_properties = {**self.iceberg_properties, "s3.endpoint": endpoint}
            self.delta_options = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
            }

    def make_folder(self, uri: str) -> None:
        """See `MetadataFiles`: a bucket has none."""

    def sync(self, uris: Iterable[str]) -> None:
        """See `MetadataFiles`."""

    def names(self, folder: str) -> list[str]:
        """See `MetadataFiles`."""
        return [str(found.base_name) for found in self._list(folder)]

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

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(_key(folder), allow_not_found=True)
        return [found for found in self._files.get_file_info(selector) if found.is_file]


def _key(uri: str) -> str:
    return uri.removeprefix(_SCHEME)
