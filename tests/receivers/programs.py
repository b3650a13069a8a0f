"""Receivers that were not written here (see install.sh)."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.polling import HANG_S

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("RECEIVERS") or HERE.parents[1] / ".receivers").absolute()
PYTHON = FOLDER / "python"
RSYSLOG = FOLDER / "rsyslog"
LIBRARIES = RSYSLOG / "usr/lib/x86_64-linux-gnu"
NPM = FOLDER / "npm"
_TRIES = round(HANG_S * 10)


def require(path: Path) -> Path:
    """Skip the test if the program is not installed."""
    if not path.exists():
        pytest.skip(f"no {path.name}: run `sh tests/receivers/install.sh {FOLDER}`")
    return path


def tenzir() -> Path:
    return require(PYTHON / "bin" / "tenzir")


def rotel() -> Path:
    return require(
        next(PYTHON.glob("lib/python3*/site-packages/rotel/rotel-agent"), PYTHON / "rotel")
    )


def rsyslogd() -> Path:
    return require(RSYSLOG / "usr/sbin/rsyslogd")


def node_modules() -> Path:
    if shutil.which("node") is None:
        pytest.skip("no node")
    return require(NPM / "node_modules" / "standardwebhooks").parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str | Path], log: Path, **environment: str) -> Iterator[None]:
    """The program, under way, with its output in `log`."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


async def until_listening(port: int, log: Path) -> None:
    """Return once something listens on the port; fails with the program's output."""
    for _ in range(_TRIES):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    pytest.fail(f"nothing listens on {port}: {lines_of(log)}")


async def until_it_has(path: Path, count: int) -> list[str]:
    """The lines of a file once it has so many."""
    lines: list[str] = []
    for _ in range(_TRIES):
        lines = lines_of(path)
        if len(lines) >= count:
            return lines
        await asyncio.sleep(0.1)
    pytest.fail(f"{len(lines)} of {count} lines in {path}: {lines[-1:]}")


def lines_of(path: Path) -> list[str]:
    """Its lines that end; a text may have other separators of lines in it."""
    return path.read_text().split("\n")[:-1] if path.is_file() else []
