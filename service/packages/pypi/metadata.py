"""The METADATA file of a wheel, which lets resolvers read dependencies without the wheel itself.

The wheel comes from an upstream and is not trusted: every read is bounded in advance.
"""

import errno
import stat
import struct
import zlib
from pathlib import Path
from typing import IO, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

METADATA_BYTES_MAX: Final = 2 << 20
DIRECTORY_BYTES_MAX: Final = 16 << 20
"""Size of the archive's central directory: about 100,000 entries, three times the most known."""

_ENCRYPTED: Final = 0x1
_SUFFIX: Final = ".dist-info"
_DAMAGED: Final = (
    BadZipFile,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""The exceptions that `zipfile` raises for damaged or malicious archives."""


class MetadataUnavailable(Exception):
    """A wheel's metadata cannot be extracted; its text is constant."""


class _BoundedReader:
    """A file that refuses to read more than DIRECTORY_BYTES_MAX at once.

    `zipfile` reads the central directory in one call, with the length that the archive states.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(
            DIRECTORY_BYTES_MAX + 1 if size < 0 else min(size, DIRECTORY_BYTES_MAX + 1)
        )
        if len(data) > DIRECTORY_BYTES_MAX:
            raise MetadataUnavailable("the archive's directory is too large")
        return data


def extract_metadata(wheel: Path, name: str, version: str) -> bytes:
    """METADATA of the wheel at `wheel`, whose file name says `name` and `version`. Blocks.

    At most METADATA_BYTES_MAX bytes, with their checksum verified. Raises MetadataUnavailable if
    the archive is damaged or encrypted, or does not have exactly one `.dist-info` directory, of
    this name and version, with exactly one METADATA; OSError if `wheel` cannot be read.
    """
    with wheel.open("rb") as file:
        try:
            with ZipFile(_BoundedReader(file)) as archive:
                return _read(archive, _metadata_entry(archive, name, version))
        except _DAMAGED as error:
            raise MetadataUnavailable("the wheel is not a readable archive") from error
        except OSError as error:
            # EINVAL: the archive states an offset before the start of the file.
            if error.errno != errno.EINVAL:
                raise
            raise MetadataUnavailable("the wheel is not a readable archive") from error


def _metadata_entry(archive: ZipFile, name: str, version: str) -> ZipInfo:
    """The archive's entry of METADATA."""
    tops = {entry.filename.partition("/")[0] for entry in archive.infolist()}
    directories = [top for top in tops if top.endswith(_SUFFIX)]
    if len(directories) != 1:
        raise MetadataUnavailable("the wheel has not exactly one .dist-info directory")
    if not _is_of(directories[0], name, version):
        raise MetadataUnavailable("the .dist-info directory is of another project or version")
    path = f"{directories[0]}/METADATA"
    entries = [entry for entry in archive.infolist() if entry.filename == path]
    if len(entries) != 1:
        raise MetadataUnavailable("the wheel has not exactly one METADATA")
    return entries[0]


def _is_of(directory: str, name: str, version: str) -> bool:
    """True if a `.dist-info` directory is named for this project and version, in any spelling."""
    project, _, release = directory.removesuffix(_SUFFIX).partition("-")
    try:
        is_version = Version(release.replace("_", "-")) == Version(version)
    except InvalidVersion:
        return False
    return is_version and canonicalize_name(project) == canonicalize_name(name)


def _read(archive: ZipFile, entry: ZipInfo) -> bytes:
    if entry.flag_bits & _ENCRYPTED:
        raise MetadataUnavailable("METADATA is encrypted")
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise MetadataUnavailable("METADATA is compressed in a way that wheels must not use")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise MetadataUnavailable("METADATA is a link")
    # Checked before reading, which stops at one byte more: the stated size may be a lie.
    if entry.file_size > METADATA_BYTES_MAX:
        raise MetadataUnavailable("METADATA is too large")
    with archive.open(entry) as content:
        metadata = content.read(METADATA_BYTES_MAX + 1)
    if len(metadata) != entry.file_size:
        raise MetadataUnavailable("METADATA is not as long as the archive states")
    return metadata
