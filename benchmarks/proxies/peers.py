"""The proxies that are compared, each as its manual sets it up for one process on this machine."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.proxies.registry import Upstream
from benchmarks.server import running_server
from service.access.callers import cli_caller
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.settings import REPOSITORY, Settings
from service.orgs.api_keys import issue_api_key
from service.orgs.organisations import create_org

FOLDER: Final = Path(os.environ.get("PEERS") or REPOSITORY / ".peers")
"""Where setup_proxies.sh installs the peers."""

READY_WITHIN_S: Final = 60.0
_DEVPI: Final = FOLDER / "devpi" / "bin"
_VERDACCIO: Final = FOLDER / "verdaccio" / "node_modules" / "verdaccio" / "bin" / "verdaccio"


class NotInstalled(Exception):
    """The peer is missing on this machine."""


@dataclass(frozen=True)
class Proxy:
    """A running proxy. URLs end with a slash; one that has no such packages has none."""

    name: str
    process_id: int
    pypi: str | None = None
    npm: str | None = None
    password: str | None = None
    """What clients send, as password of Basic authentication and as npm's token."""

    heartbeat: str | None = None
    """Where it says how long its event loop was blocked."""


Opens = Callable[[Upstream, Path], AbstractContextManager[Proxy]]
"""Runs a proxy of a registry, with its data in a folder. May raise NotInstalled."""


@contextmanager
def direct(upstream: Upstream, _: Path) -> Iterator[Proxy]:
    """The registry itself."""
    yield Proxy("direct", upstream.process_id, upstream.pypi, upstream.npm)


@contextmanager
def countersign(upstream: Upstream, folder: Path) -> Iterator[Proxy]:
    """The service: each request is authorised, each file decided on and recorded."""
    password = asyncio.run(_key(folder / "data"))
    settings = {
        "COUNTERSIGN_PROXY_PYPI_UPSTREAM": upstream.pypi,
        "COUNTERSIGN_PROXY_NPM_UPSTREAM": upstream.npm,
        "COUNTERSIGN_PROXY_INDEX_MAX_AGE_S": "3600",
    }
    module = "benchmarks.proxies.watched_server"
    with running_server(folder / "data", settings, module) as server:
        root = str(server.base_url).rstrip("/")
        url = f"{root}/proxy/acme"
        yield Proxy(
            "Countersign",
            server.process_id,
            f"{url}/pypi/simple/",
            f"{url}/npm/",
            password,
            f"{root}/heartbeat",
        )


@contextmanager
def devpi(upstream: Upstream, folder: Path) -> Iterator[Proxy]:
    """devpi-server with one mirror, which anyone may read."""
    if not (_DEVPI / "devpi-server").exists():
        raise NotInstalled("devpi")
    data, url = str(folder / "devpi"), f"http://127.0.0.1:{free_port()}"
    password = "benchmark"
    init = [_DEVPI / "devpi-init", "--serverdir", data, "--no-root-pypi", "--root-passwd", password]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    command = [_DEVPI / "devpi-server", "--serverdir", data, "--port", url.rpartition(":")[2]]
    with _running(command, f"{url}/+api") as process_id, httpx2.Client(base_url=url) as client:
        login = client.post("/+login", json={"user": "root", "password": password})
        user = login.raise_for_status().json()["result"]["password"]
        mirror = {
            "type": "mirror",
            "mirror_url": upstream.pypi,
            "mirror_cache_expiry": 3600,
            "mirror_no_project_list": True,  # the registry has none
        }
        credentials = httpx2.BasicAuth("root", user)
        client.put("/root/mirror", json=mirror, auth=credentials).raise_for_status()
        yield Proxy("devpi", process_id, pypi=f"{url}/root/mirror/+simple/")


@contextmanager
def verdaccio(upstream: Upstream, folder: Path) -> Iterator[Proxy]:
    """Verdaccio with one uplink, which anyone may read."""
    node = shutil.which("node")
    if node is None or not _VERDACCIO.exists():
        raise NotInstalled("Verdaccio")
    url = f"http://127.0.0.1:{free_port()}"
    config = folder / "verdaccio.yaml"
    # JSON is YAML, too.
    config.write_text(
        json.dumps(
            {
                "storage": str(folder / "verdaccio"),
                "uplinks": {"registry": {"url": upstream.npm, "maxage": "60m", "cache": True}},
                "packages": {"**": {"access": "$all", "proxy": "registry"}},
                "log": {"type": "stdout", "format": "pretty", "level": "error"},
            }
        )
    )
    command = [node, _VERDACCIO, "--config", config, "--listen", url.removeprefix("http://")]
    with _running(command, f"{url}/-/ping") as process_id:
        yield Proxy("Verdaccio", process_id, npm=f"{url}/")


PROXIES: Final[tuple[Opens, ...]] = (direct, countersign, devpi, verdaccio)


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: Sequence[str | Path], ready_url: str) -> Iterator[int]:
    """The id of a server's process, once it answers."""
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=null, stderr=null)
    try:
        gives_up_at = time.monotonic() + READY_WITHIN_S
        while not _answers(ready_url):
            if process.poll() is not None or time.monotonic() > gives_up_at:
                raise TimeoutError(f"{command[0]} did not get ready")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, trust_env=False).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


async def _key(data_dir: Path) -> str:
    """An API key of a new organisation `acme`."""
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    by = cli_caller("org_platform").audit_context
    async with services.store.write() as work:
        org = await create_org(work, "acme", "org", by)
        _, secret = await issue_api_key(work, org, "ci", None, by, scopes=("packages:install",))
    await services.close()
    return secret
