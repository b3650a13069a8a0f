"""Progress bars for long operations, shown on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def row_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, if that is a terminal; call with the rows done and all rows."""
    with _bar(what, MofNCompleteColumn(), TextColumn("rows")) as show:
        yield show


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """As `row_progress`, in bytes."""
    with _bar(what, DownloadColumn()) as show:
        yield show


@contextmanager
def _bar(what: str, *amounts: ProgressColumn) -> Iterator[Callable[[int, int], None]]:
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
