"""A data dir of a test's own, and the real processes that work on it."""

import asyncio
import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar

import httpx2
from sqlalchemy import select

from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.core.clock import utc_now
from service.core.settings import PREFIX, Settings, load_settings
from service.orgs.members import add_member, issue_cookie
from service.orgs.organisations import create_org
from service.store.organisations import get_org
from service.store.tables import Session
from tests.budgets import IS_FULL
from tests.conftest import ADMIN_TOKEN, BY_OPERATOR, METRICS_TOKEN
from tests.databases import database_url
from tests.interpreters import Process, run_module, start_module
from tests.polling import HANG_S, eventually
from tests.processes.command_line import Ran, invoke
from tests.talking import PLAIN

_END: Final = b"\x1c end"
DEADLINE_S = HANG_S

_Result = TypeVar("_Result")

PLATFORM = "org_operator"
CLI = "service.cli.main"
"""The module that is `countersign`."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    process: Process
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx2.Client:
        """A client with the admin token, unless `options` say otherwise.

        It wants bytes as they are: what compresses well would hide in socket buffers.
        """
        headers = options.pop("headers", {"x-service-admin-token": ADMIN_TOKEN})
        options["headers"] = {"accept-encoding": "identity", **headers}
        return httpx2.Client(
            base_url=self.url, trust_env=False, timeout=DEADLINE_S, verify=PLAIN, **options
        )

    def wait_ready(self) -> "Server":
        """Return when /readyz says 200; fail when the process ends before that."""

        def is_ready() -> bool:
            assert self.process.poll() is None, f"ended before it was ready:\n{self.logged()}"
            if not self.is_listening():  # to ask takes longer, and from the server that starts
                return False
            try:
                answer = httpx2.get(f"{self.url}/readyz", trust_env=False, verify=PLAIN)
                return answer.status_code == 200
            except httpx2.TransportError:
                return False

        eventually(is_ready, f"{self.url} ready")
        return self

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def stop(self) -> int:
        """Ask it to stop and wait; its exit code."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would: nothing runs any more."""
        self.process.kill()
        self.process.wait()

    def logged(self) -> str:
        return self.log.read_text()

    def log_lines(self) -> list[dict[str, Any]]:
        """Its log, each line as the JSON object it has to be."""
        lines = [json.loads(line) for line in self.logged().splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return lines


@dataclass
class Home:
    """A data dir in `folder`, empty at first, and the servers started on it."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    inherits: set[str] = field(default_factory=lambda: {"PATH", "HOME"})
    """The variables of this process that its processes have, too."""
    server_module: str = CLI
    """What serves: the command line, or a module of tests around it."""

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def database(self) -> Path:
        return self.data_dir / "countersign.db"

    def environment(self, **changes: str) -> dict[str, str]:
        """The variables of a process on this data dir; `changes` are settings by their names."""
        settings = {
            "data_dir": str(self.data_dir),
            "admin_token": ADMIN_TOKEN,
            "secret_key": "secret-key-of-the-process-tests",
            "metrics_token": METRICS_TOKEN,
            # Longer than any run of tests: what ends in between has a test of its own.
            "recent_sign_in_s": "86400",
            "metrics_max_age_s": "0",
            # Rows that come when they come; tests of them record them.
            "record_reads": "0",
            "platform_tenant_id": PLATFORM,
            "port": str(free_port()),  # the default port may be in use on this machine
            **self.settings,
            **changes,
        }
        url = database_url(Path(settings["data_dir"]))
        if url:
            settings.setdefault("database_url", url)
        inherited = {name: os.environ[name] for name in self.inherits if name in os.environ}
        return inherited | {PREFIX + name.upper(): value for name, value in settings.items()}

    def start(self, **changes: str) -> Server:
        """A server that has just been started and may not answer yet."""
        port = int(changes.get("port") or free_port())
        changes = {"base_url": f"http://127.0.0.1:{port}", **changes, "port": str(port)}
        log = self.folder / f"server-{len(self.servers)}.log"
        with log.open("wb") as stderr:
            env = self.environment(**changes)
            process = start_module(
                self.server_module,
                "serve",
                env=env,
                stdout=stderr,
                stderr=stderr,
                is_fresh=IS_FULL or self.server_module != CLI,
            )
        server = Server(process, port, log)
        self.servers.append(server)
        return server

    def serve(self, **changes: str) -> Server:
        return self.start(**changes).wait_ready()

    def run(self, *arguments: str, given: bytes = b"", **changes: str) -> Ran:
        """`countersign` in a process of its own, with `given` as standard input, to its end."""
        env = self.environment(**changes)
        done = run_module(CLI, *arguments, env=env, input=given, timeout=DEADLINE_S)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def begin(self, *arguments: str, stdin: int | None = None) -> Process:
        """`countersign` with `arguments`, under way; the caller has to end it."""
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return start_module(CLI, *arguments, env=self.environment(), **pipes)

    def stop_midway(self, *arguments: str, is_midway: Callable[[], object]) -> Process:
        """As `begin`, standing still (SIGSTOP) as soon as `is_midway`."""
        process = self.begin(*arguments)

        def is_there() -> bool:
            assert process.poll() is None, "it ended before it could be stopped"
            return bool(is_midway())

        eventually(is_there, "midway", every_s=0.001)
        process.send_signal(signal.SIGSTOP)
        return process

    def watch(self, *arguments: str) -> bytes:
        """What a terminal shows on standard error; the command has to succeed."""
        ours, theirs = pty.openpty()
        process = start_module(
            CLI,
            *arguments,
            env=self.environment() | {"TERM": "xterm"},
            stderr=theirs,
            stdout=subprocess.DEVNULL,
        )
        # It stays open here: when all have closed it, a read may fail before all was read.
        ended = Thread(target=_mark_end, args=(process, theirs))
        ended.start()
        shown = b""
        while not shown.endswith(_END):
            shown += os.read(ours, 65_536)
        ended.join()
        os.close(ours)
        os.close(theirs)
        code = process.returncode
        assert code == 0, (code, shown)
        return shown

    def order(self, *arguments: str, given: bytes = b"", **changes: str) -> Ran:
        """As `run`, but in the test's own process: for what a command answers."""
        return _apart(invoke, arguments, self.environment(**changes), given)

    def ask(self, *arguments: str, **changes: str) -> Any:
        """What `countersign … --json` answers; it has to succeed."""
        ran = self.order(*arguments, "--json", **changes)
        assert (ran.code, ran.notes) == (0, []), (arguments, ran)
        return ran.json

    def listed(self, *arguments: str, **changes: str) -> Any:
        """The entries of a list: the one member of the object that `ask` returns."""
        (entries,) = self.ask(*arguments, **changes).values()
        return entries

    def change(self, work: Callable[[Services], Coroutine[Any, Any, _Result]]) -> _Result:
        """Do `work` with the services over this data dir, in the test's own process."""
        settings = load_settings(self.environment())
        return _apart(asyncio.run, _with_services(settings, work))

    def end(self) -> None:
        """Kill what still runs and show how every log ends, for the report of a failed test."""
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()
            shown = "\n".join(line[:500] for line in server.logged().splitlines()[-30:])
            code = server.process.returncode
            print(f"--- {server.log.name}, exit {code}\n{shown}")  # noqa: T201 - pytest shows it


def _mark_end(process: Process, terminal: int) -> None:
    """Write _END to the terminal once the process has ended, or hangs."""
    try:
        process.wait(DEADLINE_S)
    finally:
        os.write(terminal, _END)


def _apart(function: Callable[..., _Result], *arguments: object) -> _Result:
    """The result of `function`, in a thread: in this one a browser's event loop may be waiting."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments).result()


async def _with_services(
    settings: Settings, work: Callable[[Services], Coroutine[Any, Any, _Result]]
) -> _Result:
    services = build_services(await prepare(settings), utc_now)
    try:
        return await work(services)
    finally:
        await services.close()


async def add_acme(services: Services) -> str:
    async with services.store.write() as work:
        return (await create_org(work, "acme", "org", BY_OPERATOR)).id


async def owner_cookie(services: Services) -> str:
    """The session cookie of a new owner of acme."""
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        owner = await add_member(work, acme, "ada@acme.example", "owner", "github", BY_OPERATOR)
        return await issue_cookie(work, acme, owner, BY_OPERATOR)


async def age_sign_ins(services: Services) -> None:
    """Make the sign-in of every session older than what counts as recent."""
    async with services.store.write() as work:
        for entry in await work.session.scalars(select(Session)):
            entry.authenticated_at = entry.created_at - timedelta(days=2)


def segment_of(home: Home) -> Path:
    (path,) = (home.data_dir / "audit").rglob("*.parquet")
    return path


def all_entries(client: httpx2.Client, slug: str = "acme", **query: Any) -> list[dict[str, Any]]:
    """Every audit row of `query`, page by page; each of them once."""
    rows = list(_entries(client, slug, query))
    assert len({row["id"] for row in rows}) == len(rows), "a row came twice"
    return rows


def _entries(client: httpx2.Client, slug: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cursor: dict[str, str] = {}
    while True:
        response = client.get(f"/api/v1/admin/orgs/{slug}/audit", params=query | cursor)
        assert response.status_code == 200, response.text
        page = response.json()
        yield from page["entries"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


def left_over(folder: Path) -> list[str]:
    """The names of unfinished files and folders."""
    return [path.name for path in folder.iterdir() if path.name.endswith(".part")]


def all_bindings(client: httpx2.Client, slug: str = "acme") -> list[dict[str, Any]]:
    """Every binding of the organisation, active and revoked."""
    response = client.get(f"/api/v1/admin/orgs/{slug}/oidc-bindings")
    assert response.status_code == 200, response.text
    return list(response.json()["bindings"])
