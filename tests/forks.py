"""Real processes that need not load the libraries again: forks of an interpreter that has them.

To start an interpreter and load what `countersign` needs takes two seconds of processor time, and a
fork of one that has done so a few milliseconds. The forks are processes like any other, children of
the test's own process, with their own environment, files and signals. `make test` starts processes
in this way, `make test-all` from the shell's point of view: `python -m …`, loaded each time.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import Any, Final

from service.core.settings import REPOSITORY

_LENGTH: Final = struct.Struct("!I")
_PID: Final = struct.Struct("!i")
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAKING: Final = threading.Lock()
_LOADED: Final = ("service.cli.root", "service.app.server", "service.app.application")
"""What is loaded before a fork: nothing that a process would not load by itself."""

_ending: list[BaseException] = []
"""How a fork's module ended, unless it ended without an exception."""


class ForkedProcess(subprocess.Popen[Any]):
    """`python -m module arguments`, given as `[module, *arguments]`, forked and not executed."""

    def _execute_child(self, args: Any, *options: Any) -> None:
        # The order of these is the same from Python 3.11 to 3.14.
        _, _, _, _, cwd, env, _, _, _, *pipes = options[:15]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = pipes
        files = [p2cread, c2pwrite, errwrite]
        order = {
            "arguments": list(args),
            "cwd": str(cwd or "."),
            "env": dict(os.environ if env is None else env),
        }
        self.pid = _Nursery.get().fork(
            order, [own if file == -1 else file for own, file in enumerate(files)]
        )
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


class _Nursery:
    """The interpreter that is forked, a child of this process; it ends with it."""

    _own: "_Nursery | None" = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=REPOSITORY,
        )
        theirs.close()
        atexit.register(self._end)

    @classmethod
    def get(cls) -> "_Nursery":
        """The one of this process."""
        with _MAKING:
            if cls._own is None:
                cls._own = cls()
            return cls._own

    def fork(self, order: dict[str, Any], files: list[int]) -> int:
        """The pid of a new child of this process that obeys `order`."""
        text = json.dumps(order).encode()
        with self._lock:
            # The fork's parent has ended by the time of the answer: it becomes a child of ours.
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [_LENGTH.pack(len(text))], files)
                self._socket.sendall(text)
                (pid,) = _PID.unpack(_received(self._socket, _PID.size))
            finally:
                _adopt_orphans(False)
        return int(pid)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _adopt_orphans(will: bool) -> None:
    """Make this process, or no longer, the parent of descendants whose parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(will), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


def _serve(connection: socket.socket) -> None:
    """Fork for each order, until there are no more."""
    while True:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
        if not head:
            return
        order = json.loads(_received(connection, *_LENGTH.unpack(head)))
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                for file in (connection.detach(), reader, writer):
                    os.close(file)
                _obey(order, files)
                return
            os.write(writer, _PID.pack(pid))
            os._exit(0)
        os.waitpid(between, 0)
        connection.sendall(os.read(reader, _PID.size))
        for file in (reader, writer, *files):
            os.close(file)


def _obey(order: dict[str, Any], files: list[int]) -> None:
    """Be `python -m module arguments`."""
    for own, file in enumerate(files):
        os.dup2(file, own)
    for file in files:
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    module, *sys.argv[1:] = order["arguments"]
    sys.modules.pop(module, None)  # it is run, so it must not be there already
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BaseException as error:
        _ending.append(error)
        raise


def _end_at_once() -> None:
    """End without taking down what was loaded, which takes longer than most commands."""
    error = _ending[0] if _ending else None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    atexit.register(_end_at_once)  # the first: all others have run by then
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()  # what forks do not touch is not copied
    _serve(socket.socket(fileno=int(sys.argv[1])))
