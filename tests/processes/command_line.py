"""`countersign` within the test's own process, which takes no second to start an interpreter."""

import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from service.cli.root import root as main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it said to a script."""
        return json.loads(self.out)

    @property
    def notes(self) -> list[str]:
        """What it wrote to standard error, without the line that names what it changed."""
        lines = self.err.splitlines()
        return [line for line in lines if not line.startswith(('{"target": ', "Target: "))]

    @property
    def refusal(self) -> str:
        """What it said when it failed: exactly one line, and nothing on standard output."""
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n")
        if self.err.startswith("{"):
            said = json.loads(self.err)
            assert list(said) == ["error"]
            return str(said["error"])
        assert self.err.startswith("countersign: "), self.err
        return self.err.removeprefix("countersign: ").rstrip("\n")


def invoke(arguments: Sequence[str], environment: dict[str, str], given: bytes = b"") -> Ran:
    """`countersign arguments` with no variables but `environment`, and `given` as standard input.

    Commands start an event loop of their own: call it from a thread that has none. Raises what
    would end a process with a traceback.
    """
    variables = dict.fromkeys(os.environ) | environment  # None takes a variable out
    runner = CliRunner(catch_exceptions=False)
    # A file, because commands also read standard input by its descriptor.
    with tempfile.TemporaryFile() as stdin, logging_restored():
        stdin.write(given)
        stdin.seek(0)
        result = runner.invoke(main, arguments, input=stdin, env=variables, prog_name="countersign")
    return Ran(result.exit_code, result.stdout_bytes.decode(), result.stderr_bytes.decode())


_restoring = threading.Lock()
_running: list[Callable[[], None]] = []
"""How to restore the logs, once for each command that runs: some tests run two at a time."""


@contextmanager
def logging_restored() -> Iterator[None]:
    """Undo what commands change about this process's logs, when the last of them has ended.

    Two that overlap must not take the configuration of the other one for that of the process.
    """
    with _restoring:
        _running.append(_running[0] if _running else _changing_logging())
    try:
        yield
    finally:
        with _restoring:
            restore = _running.pop()
            if not _running:
                restore()


def _changing_logging() -> Callable[[], None]:
    """Let commands configure logs for themselves; returns what undoes that."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {logger: logger.level for logger in _loggers()}
    configuration, configure = structlog.get_config(), structlog.configure

    def configure_uncached(**options: Any) -> None:
        # A logger that caches a command's configuration keeps it in the tests that follow.
        configure(**options | {"cache_logger_on_first_use": False})

    def restore() -> None:
        patch.undo()
        configure(**configuration)
        root.handlers[:] = handlers
        for logger in _loggers():
            logger.setLevel(levels.get(logger, logging.NOTSET))

    patch = pytest.MonkeyPatch()
    patch.setattr(structlog, "configure", configure_uncached)
    return restore


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in known if isinstance(logger, logging.Logger))]
