"""How far long work has come, for whoever watches a terminal."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

Show = Callable[[int, int], None]
"""Called with what is done so far, and with all there is."""


def row_progress(what: str) -> AbstractContextManager[Show]:
    """A bar of rows on standard error, if that is a terminal."""
    return _progress(what, MofNCompleteColumn(), TextColumn("rows"))


def byte_progress(what: str) -> AbstractContextManager[Show]:
    """A bar of bytes on standard error, if that is a terminal."""
    return _progress(what, DownloadColumn(binary_units=True))


@contextmanager
def _progress(what: str, *columns: ProgressColumn) -> Iterator[Show]:
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
