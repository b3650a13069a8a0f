"""Runs a command in place of this process, as far as its caller can tell."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Final

FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""The exit codes of shells."""

_BY_SIGNAL: Final = 128


class Child:
    """The command to run. Signals that arrive before it has started are sent to it then."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run `command` to its end; its exit code, or 128 plus the number of the fatal signal.

        Raises OSError if it cannot be run.
        """
        with (
            self._forwarding(),
            # The user's own command, verbatim; no shell interprets it.
            subprocess.Popen(command, env=dict(environment)) as process,  # noqa: S603
        ):
            self._process = process
            # After `_process` is set: from then on signals are sent directly, and none is lost.
            for number in self._early:
                process.send_signal(number)
            code = process.wait()
        return code if code >= 0 else _BY_SIGNAL - code

    @contextlib.contextmanager
    def _forwarding(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return
        before = {number: signal.getsignal(number) for number in FORWARDED}
        # What the caller ignores, such as Ctrl-C behind `nohup`, the command ignores, too.
        heard = [number for number in FORWARDED if before[number] != signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number in {signal.SIGINT, signal.SIGQUIT} and _is_in_foreground():
            return  # a terminal sends them to both of us
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp() if sys.__stdin__ else False
    except (OSError, ValueError):
        return False
