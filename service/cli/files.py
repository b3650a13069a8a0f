"""Files that commands write: complete or absent. And those they read, as TOML."""

import errno
import os
import secrets
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click
import msgspec

from analytics.storage.fsync import fsync
from service.core.errors import Conflict, Invalid

READ_PATH: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
WRITTEN_PATH: Final = click.Path(path_type=Path, allow_dash=True, dir_okay=False)

STANDARD_OUTPUT: Final = Path("-")
STANDARD_INPUT: Final = "-"
_Command = TypeVar("_Command", bound=Callable[..., Any])
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without hard links."""


FILE_EXISTS: Final = Conflict.of(
    "{value} exists already: choose another name, or use --force to replace it"
)


NOT_A_FILE: Final = Conflict.of(
    "{value} is not a file: choose another name, or use - for standard output"
)


@contextmanager
def new_file(path: Path, *, is_forced: bool) -> Iterator[BinaryIO]:
    """A file to write, which is made durable and gets its name atomically at the block's end.

    Until then `path` is unchanged. If the block fails nothing is left behind; a process that is
    killed leaves `.<name>.<random>.part`. `-` is standard output.
    Raises FILE_EXISTS, before the block and after it, unless `is_forced`; NOT_A_FILE even then.
    """
    if path == STANDARD_OUTPUT:
        with open(sys.stdout.fileno(), "wb", closefd=False) as output:
            yield output
        return
    _check(path, is_forced=is_forced)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
        # Before it gets its name: after a power loss, that must not be of an incomplete file.
        fsync(part)
        _name(part, path, is_forced=is_forced)
        fsync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _name(part: Path, path: Path, *, is_forced: bool) -> None:
    if is_forced:
        part.replace(path)
        return
    try:
        # Unlike a rename, a link does not replace a file that was created there meanwhile.
        path.hardlink_to(part)
    except FileExistsError as error:
        raise FILE_EXISTS(value=str(path)) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _check(path, is_forced=False)
        part.replace(path)


def _check(path: Path, *, is_forced: bool) -> None:
    if path.exists() and not path.is_file():
        raise NOT_A_FILE(value=str(path))  # or a forced export would replace a device
    if os.path.lexists(path) and not is_forced:
        raise FILE_EXISTS(value=str(path))


force_option: Final = click.option(
    "--force", "is_forced", is_flag=True, help="Replace FILE if it exists."
)


def output_options(help_: str, *, is_required: bool = False) -> Callable[[_Command], _Command]:
    """Options for the file that a command writes, which it gets as `path` and `is_forced`."""
    path = click.option(
        "-o",
        "--output",
        "path",
        metavar="FILE",
        type=WRITTEN_PATH,
        help=help_,
        **({"required": True} if is_required else {"default": STANDARD_OUTPUT}),
    )
    return lambda command: path(force_option(command))


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file, in JSON's types. Raises Invalid."""
    try:
        content: dict[str, Any] = msgspec.to_builtins(tomllib.loads(file.read_text()))
    except (ValueError, RecursionError) as error:
        raise Invalid(str(error)) from error
    return content
