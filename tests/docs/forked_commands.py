"""`countersign` in a reader's shell, without loading the libraries for each command.

The program in the shell hands its arguments, folder, variables and files to this process, which
forks for it (see `tests.forks`), and it ends as the fork does.
"""

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from tests.forks import ForkedProcess
from tests.processes.homes import CLI

_LENGTH_BYTES: Final = 4
_PROGRAM: Final = """\
#!{python} -IS
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect({address!r})
order = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(asked, [len(order).to_bytes({length_bytes}, "big")], [0, 1, 2])
asked.sendall(order)
sys.exit(asked.recv(1)[0])
"""


@contextmanager
def forked_countersign(folder: Path) -> Iterator[None]:
    """In the block `folder` has the program `countersign`."""
    address = f"\0{secrets.token_hex(16)}"  # of no file, whose name might be too long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        Thread(target=_accept, args=(listener,), daemon=True).start()
        text = _PROGRAM.format(python=sys.executable, address=address, length_bytes=_LENGTH_BYTES)
        (program := folder / "countersign").write_text(text)
        program.chmod(0o755)
        yield
        listener.shutdown(socket.SHUT_RDWR)  # which ends the thread


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as rest:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
        arguments, folder, variables = json.loads(rest.read(int.from_bytes(head, "big")))
        stdin, stdout, stderr = files
        process = ForkedProcess(
            [CLI, *arguments],
            cwd=folder,
            env=variables,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        for file in files:
            os.close(file)
        code = process.wait()
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
