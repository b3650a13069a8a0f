"""Progress bars for long operations, shown on a terminal."""

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
"""Shows what is done and what there is."""


def row_progress(what: str) -> AbstractContextManager[Show]:
    """A bar on standard error, if that is a terminal; call with the rows done and all rows."""
    return _bar(what, MofNCompleteColumn(), TextColumn("rows"))


def byte_progress(what: str) -> AbstractContextManager[Show]:
    """As `row_progress`, in bytes."""
    return _bar(what, DownloadColumn())


@contextmanager
def _bar(what: str, *amounts: ProgressColumn) -> Iterator[Show]:
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *amounts,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
