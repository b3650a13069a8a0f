"""Processes that begin warm: forked from one that has everything imported, not begun from nothing.

A fresh interpreter imports for over a second before the service does anything, and the suite starts
hundreds. What begins here is a process like any other of this one's children: it has its own id and
files, takes signals, is killed and waited for, and ends as interpreters do. Only its imports were
made before. `python -m tests.warm` is the process that they are forked from.
"""

import atexit
import ctypes
import functools
import gc
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from service.settings import REPOSITORY

CLI: Final = "service.cli.main"
_ORDER_BYTES_MAX: Final = 128 * 1024
_PR_SET_CHILD_SUBREAPER: Final = 36


class Warm(subprocess.Popen[Any]):
    """`python -m module arguments`, in the repository. Options are those of `Popen`."""

    def __init__(self, module: str, *arguments: str, **options: Any) -> None:
        super().__init__([module, *arguments], **options)

    def _execute_child(self, words: list[str], *rest: Any) -> None:
        """Popen's own step of beginning a process; all before and after it stays Popen's."""
        env: Mapping[str, str] = os.environ if rest[5] is None else rest[5]
        pipes = rest[9:15]  # both ends of standard input, output and error; -1 is our own
        ours = [sys.__stdin__, sys.__stdout__, sys.__stderr__]
        theirs = (pipes[0], pipes[3], pipes[5])
        files = [own.fileno() if one == -1 else one for one, own in zip(theirs, ours, strict=True)]
        self.pid = _source().begin(words, dict(env), files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    module: str, *arguments: str, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """`python -m module arguments` to its end, as `subprocess.run` would; its output is kept."""
    given = options.pop("input", None)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Warm(module, *arguments, **pipes, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([module, *arguments], process.returncode, out, err)


class _Source:
    """The process that others are forked from."""

    def __init__(self) -> None:
        # A process whose parent ends becomes the child of this one, which can wait for it then.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = threading.Lock()
        with theirs:  # it ends when this end of its standard input is closed: with this process
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], cwd=REPOSITORY, stdin=theirs
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._orders.close()
        self._process.wait()

    def begin(self, words: list[str], env: dict[str, str], files: list[int]) -> int:
        """The id of a new child of this process."""
        order = json.dumps({"words": words, "env": env}).encode()
        with self._one_at_a_time:
            socket.send_fds(self._orders, [order], files)
            return int(self._orders.recv(64))


@functools.cache
def _source() -> _Source:
    return _Source()


def main() -> None:
    """Fork a process for each order, until there are no more; each then runs its module."""
    import service.cli.main  # noqa: F401 - what is worth having, once for all of them

    gc.collect()
    gc.freeze()  # or looking for garbage would copy every page in each of them
    orders = socket.socket(fileno=0)
    while True:
        order, files, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 3)
        if not order:
            return
        pid = _fork_twice()
        if pid == 0:
            orders.detach()
            break
        orders.send(str(pid).encode())
        for file in files:
            os.close(file)
    _become(files, **json.loads(order))


def _fork_twice() -> int:
    """0 in the new process; in this one its id, once it is nobody's child here any more."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(writer)
            return 0
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        return int(told.read())


def _become(files: list[int], words: list[str], env: dict[str, str]) -> None:
    """Run a module as `python -m` does, with these standard files and this environment."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    atexit.register(
        gc.unfreeze
    )  # or libraries complain at the very end about what nobody took away
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = _text(0, sys.stdin)
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr, is_line_buffered=True)
    module, *arguments = words
    sys.argv = [module, *arguments]
    if module == CLI:  # which is imported, and must not be run a second time beside itself
        sys.modules[CLI].main()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _text(file: int, like: Any, *, is_line_buffered: bool = False) -> io.TextIOWrapper:
    raw = open(file, "rb" if file == 0 else "wb", closefd=False)  # noqa: SIM115 - for good
    return io.TextIOWrapper(
        raw,
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=is_line_buffered or raw.isatty(),
    )


if __name__ == "__main__":
    main()
