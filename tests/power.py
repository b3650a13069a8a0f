"""A power cut at any step: from then on nothing reaches the disk or the database any more."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.services import Services


class PowerCut(BaseException):
    """The process ends here."""


@contextmanager
def power_cut_after(steps: int, services: Services) -> Iterator[None]:
    """Let `steps` more steps happen in the block and no other: the rest raise PowerCut.

    A step is a sync, a new name, a removed file, a statement of a writer or a commit.
    """
    left = steps

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerCut

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            step()
            return function(*arguments, **options)

        return run

    def on_statement(*_: object) -> None:
        step()

    def on_commit(_: object) -> None:
        step()

    writer = services.store._engines.writer.sync_engine
    event.listen(writer, "before_cursor_execute", on_statement)
    event.listen(writer, "commit", on_commit)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", stepping(os.fsync))
            for name in ("rename", "unlink", "mkdir"):
                patch.setattr(Path, name, stepping(getattr(Path, name)))
            yield
    finally:
        event.remove(writer, "before_cursor_execute", on_statement)
        event.remove(writer, "commit", on_commit)
