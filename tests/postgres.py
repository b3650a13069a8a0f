"""A real PostgreSQL 15 for tests: one server for each test process, one database for each test.

The server starts when the first test asks for it, and ends with the test process whatever ends
that. Its data is in memory where there is /dev/shm; `fsync` is on, because Countersign insists.
"""

import asyncio
import os
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL

from benchmarks.postgres_programs import find_program, give_away, run_as
from service.store.engine_factory import create_engines
from service.store.migrate import migrate
from tests.polling import HANG_S

EMPTY: Final = "template0"
"""What a database without any table is copied from."""
MIGRATED: Final = "migrated"
"""What a database of the current schema, without any row, is copied from."""

USER: Final = "countersign"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_PREFIX: Final = "countersign-postgres-"
_PORTS: Final = range(20_000, 32_000)
"""Below the ports that the kernel gives to connections: a stopped server's stays free."""
_OPTIONS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "password_encryption": "md5",  # asyncpg computes SCRAM in Python, for each connection
    "max_connections": "200",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",  # in the data: nothing is left after a kill
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "off",  # memory does not tear pages
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "jit": "off",
    "timezone": "UTC",
    "log_checkpoints": "off",
}
# SIGQUIT stops the server at once when the pipe from the test process closes, however that ended.
_KEEPER: Final = '"$@" & server=$!; echo $server; read -r _; kill -QUIT $server; wait $server'


class PostgresServer:
    """A cluster of its own in a temporary folder, on a free port of 127.0.0.1.

    Raises FileNotFoundError, which names what to install, if PostgreSQL 15 is missing.
    """

    def __init__(self) -> None:
        find_program("initdb")
        _remove_leftovers()
        parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        self._password = secrets.token_hex(16)
        self._port = 0
        self._keeper: subprocess.Popen[str] | None = None
        self._pid = 0
        self._templates: set[str] = set()
        self._admin: psycopg.Connection[Any] | None = None
        self._making = threading.RLock()
        self._initialise()

    def url(self, database: str) -> str:
        return URL.create(
            "postgresql+asyncpg", USER, self._password, "127.0.0.1", self._port, database
        ).render_as_string(hide_password=False)

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self._port,
            user=USER,
            password=self._password,
            dbname=database,
            autocommit=True,
            connect_timeout=int(HANG_S),
        )

    @contextmanager
    def database(self, template: str = MIGRATED) -> Iterator[str]:
        """The URL of a new database, a copy of `template`; dropped afterwards."""
        name = self.create_database(template)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def create_database(self, template: str = MIGRATED) -> str:
        if template == MIGRATED:
            self.keep_template(MIGRATED, _migrate)
        name = f"test_{secrets.token_hex(8)}"
        self._copy(template, name)
        return name

    def replace_database(self, name: str, template: str) -> None:
        """Make `name` a copy of `template` instead of what it is."""
        self.drop_database(name)
        self._copy(template, name)

    def drop_database(self, name: str) -> None:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        self._administer(drop)

    def keep_template(self, name: str, fill: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Make the template `name`, if it is not there: an empty database filled by `fill(url)`."""
        if name not in self._templates:
            self._copy(EMPTY, name)
            try:
                _run_apart(fill(self.url(name)))
            except BaseException:
                self.drop_database(name)  # the next test shows the same failure
                raise
            self._templates.add(name)

    def start(self) -> None:
        """Start it, on the same port as before; returns once it accepts connections."""
        if self._keeper is not None:
            return
        for _ in range(10):
            self._port = self._port or random.choice(_PORTS)
            if self._has_started():
                return
            if not self._pid:
                self._port = 0  # it was taken
        raise RuntimeError(f"PostgreSQL does not start:\n{self.log()[-2000:]}")

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Restart it with this certificate; it still accepts connections without TLS."""
        self.stop()
        data = self._folder / "data"
        for source, name in ((certificate, "server.crt"), (key, "server.key")):
            (target := data / name).write_bytes(source.read_bytes())
            target.chmod(0o600)
            give_away(target)
        with (data / "postgresql.auto.conf").open("a") as options:
            options.write("ssl = 'on'\n")
        self.start()

    def stop(self, *, is_crash: bool = False) -> None:
        """Stop it. Transactions under way are aborted; after a crash the next start recovers."""
        if self._keeper is None:
            return
        self.resume()
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGQUIT if is_crash else signal.SIGINT)
        self._wait_for_end()

    def pause(self) -> None:
        """Stop every process of the server from running: connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the processes go on after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            # That of a connection that was just closed may have ended since.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Paused in the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        self.stop(is_crash=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _initialise(self) -> None:
        give_away(self._folder)
        password = self._folder / "password"
        password.write_text(self._password)
        give_away(password)
        subprocess.run(
            [
                *(find_program("initdb"), "-D", self._folder / "data", "-U", USER),
                *("-A", "md5", "--pwfile", password),
                *("-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **run_as(),
        )
        password.unlink()
        options = "".join(f"{name} = '{value}'\n" for name, value in _OPTIONS.items())
        (self._folder / "data" / "postgresql.auto.conf").write_text(options)

    def _has_started(self) -> bool:
        data = self._folder / "data"
        with (self._folder / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    *("/bin/sh", "-c", _KEEPER, "sh", find_program("postgres")),
                    *("-D", data, "-p", str(self._port)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
                start_new_session=True,
                **run_as(),
            )
        assert self._keeper.stdout is not None
        self._pid = int(self._keeper.stdout.readline())
        until = time.monotonic() + HANG_S
        while time.monotonic() < until:
            with suppress(OSError, IndexError):
                lines = (data / "postmaster.pid").read_text().splitlines()
                if int(lines[0]) == self._pid and lines[7].strip() == "ready":
                    return True
            if not _is_alive(self._pid):
                break
            time.sleep(0.01)
        self._wait_for_end()
        return False

    def _wait_for_end(self) -> None:
        keeper, self._keeper = self._keeper, None
        assert keeper is not None
        until = time.monotonic() + HANG_S
        while _is_alive(self._pid) and time.monotonic() < until:
            time.sleep(0.01)
        keeper.communicate()  # closes the pipe: what still runs is killed
        self._pid = 0

    def _pids(self) -> list[int]:
        if not self._pid:
            return []
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        return [self._pid, *map(int, children.read_text().split())]

    def _copy(self, template: str, name: str) -> None:
        # With few changes since the last checkpoint, files are copied faster than pages are logged.
        self._administer(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )

    def _administer(self, statement: sql.Composed) -> None:
        """Execute it on a connection that is kept: to connect takes as long as to copy."""
        with self._making:
            if self._admin is None:
                self._admin = self.connect()
            self._admin.execute(statement)


_servers: list[PostgresServer] = []
"""The server of this test process, once a test needed it."""


def postgres_server() -> PostgresServer:
    """The server that tests of this process share; a test must not stop it."""
    if not _servers:
        server = PostgresServer()
        server.start()
        _servers.append(server)
    return _servers[0]


@pytest.fixture(scope="session", autouse=True)
def _stop_shared_postgres() -> Iterator[None]:
    yield
    while _servers:
        _servers.pop().close()


@pytest.fixture
def postgres() -> PostgresServer:
    return postgres_server()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a database of the test's own, with the current schema and no row."""
    with postgres_server().database() as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A running server of the test's own, to stop and start."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


async def _migrate(url: str) -> None:
    engines = create_engines(url, HANG_S)
    try:
        await migrate(engines)
    finally:
        await engines.dispose()


def _run_apart(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in an event loop of its own, also where another one is running."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _is_alive(pid: int) -> bool:
    """False once it has ended, whether or not its parent has noticed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _remove_leftovers() -> None:
    """Remove the data of servers whose test process was killed."""
    for parent in {_MEMORY, Path(tempfile.gettempdir())}:
        for folder in parent.glob(f"{_PREFIX}*"):
            pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and not _is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
