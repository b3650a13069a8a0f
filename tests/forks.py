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
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

from service.core.settings import REPOSITORY

_LENGTH: Final = struct.Struct("!I")
_PID: Final = struct.Struct("!i")
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAKING: Final = threading.Lock()
_LOADED: Final = (
    "service.app.server",
    "service.cli.in_process",
    "service.cli.root",
    "service.store.sqlite.engine",
)
"""What is loaded before a fork: nothing that most processes would not load by themselves."""

_ending: list[BaseException] = []
"""How a fork's module ended, unless it ended without an exception."""


class ForkedProcess:
    """`python -m module arguments`, given as `[module, *arguments]`, forked and not executed.

    It offers what tests use of `subprocess.Popen`, which offers no way to fork another process.
    """

    def __init__(
        self,
        args: list[str],
        *,
        cwd: Path | str = ".",
        env: dict[str, str] | None = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        text: bool = False,
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self._reaping = threading.Lock()
        self._talking: list[threading.Thread] = []
        self._said: dict[str, Any] = {}
        binary = "" if text else "b"
        order = {
            "arguments": args,
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
        }
        with ExitStack() as theirs:
            self.stdin, first = _connected(stdin, 0, f"w{binary}", theirs)
            self.stdout, second = _connected(stdout, 1, f"r{binary}", theirs)
            self.stderr, third = _connected(stderr, 2, f"r{binary}", theirs)
            self.pid = _Nursery.get().fork(order, [first, second, third])

    def __enter__(self) -> "ForkedProcess":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        with self._reaping:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, once it has. Raises TimeoutExpired."""
        with suppress(ProcessLookupError):  # another thread has waited for it
            if self.poll() is None:
                ended = select.poll()
                ended.register(handle := os.pidfd_open(self.pid))
                try:
                    ended.poll(None if timeout is None else 1000 * timeout)
                finally:
                    os.close(handle)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002 - as `subprocess` calls it
        """Send `input`, and what it has said once it has ended. Raises TimeoutExpired."""
        ends_at = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        if not self._talking:
            self._talking = [
                threading.Thread(target=self._read, args=(name,), daemon=True)
                for name in ("stdout", "stderr")
            ] + [threading.Thread(target=self._write, args=(input,), daemon=True)]
            for thread in self._talking:
                thread.start()
        for thread in self._talking:
            thread.join(max(0.0, ends_at - time.monotonic()))
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if timeout is None else max(0.0, ends_at - time.monotonic()))
        return self._said["stdout"], self._said["stderr"]

    def _read(self, name: str) -> None:
        stream = getattr(self, name)
        self._said[name] = None
        if stream is not None:
            with stream:
                self._said[name] = stream.read()

    def _write(self, content: Any) -> None:
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                if content:
                    self.stdin.write(content)
                self.stdin.close()


def _connected(given: Any, own: int, mode: str, theirs: ExitStack) -> tuple[IO[Any] | None, int]:
    """Our end of a pipe, if it is asked for, and the file that the process has as its `own`."""
    if given is None:
        return None, own
    if given == subprocess.DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, null)
        return None, null
    if given != subprocess.PIPE:
        return None, given if isinstance(given, int) else given.fileno()
    reader, writer = os.pipe()
    ours, other = (writer, reader) if mode.startswith("w") else (reader, writer)
    theirs.callback(os.close, other)
    return os.fdopen(ours, mode), other


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
    from sqlalchemy.orm import configure_mappers

    from service.cli.root import declared_commands
    from tests.shared_routes import compile_routes

    atexit.register(_end_at_once)  # the first: all others have run by then
    for name in _LOADED:
        importlib.import_module(name)
    compile_routes()
    configure_mappers()
    declared_commands()
    gc.freeze()  # what forks do not touch is not copied
    _serve(socket.socket(fileno=int(sys.argv[1])))
