"""Copying files byte for byte: hashed on the way, durable at the end."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_STEP_BYTES: Final = 4 * 2**20
PROCESS_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The process or the machine is short of something: no file could be read, so none is at fault."""


class SourceFault(OSError):
    """The file to copy is not there, or cannot be read."""


@dataclass(slots=True)
class FileCopy:
    """One file to copy. Iterating copies it, and yields the number of bytes of each step.

    Afterwards `size` and `sha256` are those of the bytes that were read. With `is_link` the new
    name is a hard link, and the file is still read.
    """

    source: Path
    target: Path
    is_link: bool = False
    size: int = 0
    sha256: str = ""

    def __iter__(self) -> Iterator[int]:
        """Copy the file. Only its owner may read the copy, as with the data dir.

        Raises SourceFault where the source is at fault, and OSError otherwise.
        """
        self.target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.is_link:
            try:
                self.target.hardlink_to(self.source)
            except FileNotFoundError as error:  # the target's folder has just been made
                raise _source_fault(self.source, error) from error
            yield from self._read(None)
            return
        # O_EXCL: no file is ever written over, and no symbolic link followed.
        descriptor = os.open(self.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            yield from self._read(copy)
            copy.flush()
            # Its name becomes durable with `sync_folders`, once for all files that are copied.
            os.fsync(copy.fileno())

    def _read(self, copy: BinaryIO | None) -> Iterator[int]:
        digest = hashlib.sha256()
        with _source_faults(self.source):
            file = self.source.open("rb")
        with file:
            while content := self._step(file):
                digest.update(content)
                if copy is not None:
                    copy.write(content)
                self.size += len(content)
                yield len(content)
        self.sha256 = digest.hexdigest()

    def _step(self, file: BinaryIO) -> bytes:
        with _source_faults(self.source):
            return file.read(_STEP_BYTES)


@contextmanager
def _source_faults(source: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in PROCESS_FAULTS:
            raise
        raise _source_fault(source, error) from error


def _source_fault(source: Path, error: OSError) -> SourceFault:
    return SourceFault(error.errno, error.strerror, str(source))


def sha256_of(path: Path) -> str:
    """The file's digest, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
