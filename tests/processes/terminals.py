"""A person at a terminal, who is asked and answers."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.interpreters import Process, start_module
from tests.processes.command_line import Ran
from tests.processes.homes import CLI, DEADLINE_S


class Terminal:
    """A command under way, whose questions and answers are on a terminal."""

    def __init__(self, ours: int, process: Process) -> None:
        self.process = process
        self._ours = ours
        self._shown = b""

    def until(self, text: str) -> str:
        """What was shown so far, once `text` is."""
        while text.encode() not in self._shown:
            self._shown += os.read(self._ours, 65_536)
        return self._shown.decode()

    def answer(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> Ran:
        """How it ended, with what the terminal showed as its standard error."""
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        with suppress(OSError):  # it says so when no process has the terminal any more
            while piece := os.read(self._ours, 65_536):
                self._shown += piece
        return Ran(self.process.returncode, out.decode(), self._shown.decode())


@contextmanager
def at_a_terminal(environment: dict[str, str], *words: str) -> Iterator[Terminal]:
    """`countersign WORDS`; standard output goes elsewhere."""
    ours, theirs = pty.openpty()
    process = start_module(
        CLI,
        *words,
        env=environment | {"TERM": "xterm"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
