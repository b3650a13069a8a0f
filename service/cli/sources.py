"""Input files of commands: named, listed in a file, or standard input."""

import os
import select
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from analytics.imports.chunks import ImportFormat, file_kind
from service.audit.importer import Source
from service.audit.lake import Lake
from service.cli.files import STANDARD_INPUT
from service.core.errors import Invalid

NAMES_MAX: Final = 100_000
_PIECE_BYTES: Final = 1024 * 1024
_PATIENCE_S: Final = 0.2


class NotARegularFile(Invalid):
    """The path is not a regular file, which can be read twice."""

    text = "not a regular file: pipe it in, as -"


class ListInvalid(Invalid):
    """The list of files cannot be used."""

    text = f"{{value}} must list file names in UTF-8, one per line, at most {NAMES_MAX} of them"


def listed_names(path: str) -> Sequence[str]:
    """The file names in `path`, one per line; `-` is not accepted. Raises ListInvalid."""
    with _list(path) as lines:
        names = [line.rstrip(b"\r\n") for line in islice(lines, NAMES_MAX + 1)]
    if len(names) > NAMES_MAX or any(b"\0" in name or name == b"-" for name in names):
        raise ListInvalid(value=path)
    try:
        return [name.decode() for name in names if name]
    except UnicodeDecodeError as error:
        raise ListInvalid(value=path) from error


@contextmanager
def _list(path: str) -> Iterator[BinaryIO]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


@asynccontextmanager
async def open_source(
    name: str, given: ImportFormat | None, lake: Lake, temp_dir: Path, *, is_raw: bool
) -> AsyncIterator[Source]:
    """The file called `name`, to be read more than once; `-` is standard input.

    Raises OSError, NotARegularFile, UnreadableFile.
    """
    kind = file_kind(name, given, is_raw=is_raw)
    if name == STANDARD_INPUT:
        # The file has no name, so it disappears with this process, however that ends.
        with tempfile.TemporaryFile(dir=temp_dir) as spooled:
            read = partial(_read_soon, sys.stdin.fileno())
            while (content := await lake.run_in_thread(read)) != b"":
                spooled.write(content or b"")
            spooled.flush()
            yield Source(name, spooled, spooled.tell(), kind)
        return
    with _regular_file(Path(name)) as file:
        yield Source(Path(name).name, file, os.fstat(file.fileno()).st_size, kind)


def _read_soon(descriptor: int) -> bytes | None:
    """Bytes that have arrived, b"" at the end, None if none arrived for _PATIENCE_S.

    Ctrl-C ends the process only if no thread is blocked in a read that may never return.
    """
    is_ready, _, _ = select.select([descriptor], [], [], _PATIENCE_S)
    return os.read(descriptor, _PIECE_BYTES) if is_ready else None


@contextmanager
def _regular_file(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():
        raise NotARegularFile  # opening a pipe would block until it has a writer
    with path.open("rb") as file:
        yield file
