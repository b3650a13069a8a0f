"""Claim: the install proxy answers a warm index as fast as a server that does nothing else.

The peer of each figure is a direct request to the same upstream: a server that sends bytes it has
ready. Requests per second of one core are requests by the processor time that the server's process
took for them, so that other work on the machine does not count.
"""

import asyncio
import hashlib
import json
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from benchmarks.client import Client, Times, timed
from benchmarks.results import record
from benchmarks.server import running_server
from service.access.callers import cli_caller
from service.bootstrap import prepare
from service.clock import utc_now
from service.composition import build_services
from service.orgs.changes import create_org, issue_api_key
from service.settings import Settings

SMALL_FILES, LARGE_FILES = 10, 3_500
REQUESTS, LARGE_REQUESTS = 4_000, 200
ESTIMATED = {
    "small index, requests/s": 2000.0,
    "small index direct, requests/s": 20000.0,
    "1 MB index p50, ms": 5.0,
    "1 MB index direct p50, ms": 1.0,
}
_JSON = "application/vnd.pypi.simple.v1+json"


def page(name: str, files: int, url: str) -> bytes:
    """A project's page with this many wheels; 3,500 are about 1 MB."""
    listed = [
        {
            "filename": (filename := f"{name}-1.{number}-py3-none-any.whl"),
            "url": f"{url}/files/{filename}",
            "hashes": {"sha256": hashlib.sha256(filename.encode()).hexdigest()},
            "size": 1000 + number,
            "upload-time": "2024-01-01T00:00:00Z",
        }
        for number in range(files)
    ]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": listed}).encode()


class _Upstream(asyncio.Protocol):
    """Sends what is ready for a path; requests are small and come one by one."""

    answers: ClassVar[dict[bytes, bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.answers[data.split(b" ", 2)[1]])


def _serve(listener: socket.socket, url: str) -> None:
    for name, count in (("small", SMALL_FILES), ("large", LARGE_FILES)):
        body = page(name, count, url)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {_JSON}\r\ncontent-length: {len(body)}\r\n\r\n"
        _Upstream.answers[f"/simple/{name}/".encode()] = head.encode() + body

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(_Upstream, sock=listener)
        await server.serve_forever()

    asyncio.run(forever())


@contextmanager
def upstream() -> Iterator[tuple[str, int]]:
    """The URL of a registry in a process of its own, and that process's id."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, url))
    process.start()
    listener.close()
    try:
        assert process.pid is not None
        yield url, process.pid
    finally:
        process.terminate()
        process.join()


async def key_of(data_dir: Path) -> str:
    """An API key of a new organisation `acme`."""
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    by = cli_caller("org_platform").audit_context
    async with services.store.write() as work:
        org = await create_org(work, "acme", "org", by)
        _, secret = await issue_api_key(work, org, "ci", None, by, scopes=("packages:install",))
    await services.close()
    return secret


def processor_s(process_id: int) -> float:
    """The processor time that a process has taken so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def per_core(process_id: int, count: int, ask: Callable[[], object]) -> float:
    """Requests for each second of a core."""
    began = processor_s(process_id)
    for _ in range(count):
        ask()
    return count / max(processor_s(process_id) - began, 0.01)


def main() -> None:
    """Measure, print and record."""
    with upstream() as (url, upstream_id), tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        secret = asyncio.run(key_of(data_dir))
        settings = {
            "COUNTERSIGN_PROXY_PYPI_UPSTREAM": f"{url}/simple/",
            "COUNTERSIGN_PROXY_INDEX_MAX_AGE_S": "3600",
        }
        with running_server(data_dir, settings) as server:
            ports = [urlsplit(str(each)).port or 0 for each in (server.base_url, url)]
            headers = {"x-service-api-key": secret, "accept": _JSON}
            with Client(ports[0], headers) as proxy, Client(ports[1], headers) as direct:
                figures = measured(proxy, direct, server.process_id, upstream_id)
    for name, figure in figures.items():
        print(f"{name}: {figure:.4g}")
    record("proxy", figures, estimated=ESTIMATED)


def measured(proxy: Client, direct: Client, server_id: int, upstream_id: int) -> dict[str, float]:
    """All figures, with everything warm."""
    small, large = "/proxy/acme/pypi/simple/small/", "/proxy/acme/pypi/simple/large/"
    for path in (small, large):
        assert proxy.get(path).status == 200
    figures = {
        "small index, requests/s": per_core(server_id, REQUESTS, lambda: proxy.get(small)),
        "small index direct, requests/s": per_core(
            upstream_id, REQUESTS * 5, lambda: direct.get("/simple/small/")
        ),
    }
    for name, client, path in (
        ("1 MB index", proxy, large),
        ("1 MB index direct", direct, "/simple/large/"),
    ):
        times: Times = timed(lambda c=client, p=path: c.get(p), LARGE_REQUESTS)
        figures[f"{name} p50, ms"] = times.percentile(50)
        figures[f"{name} p99, ms"] = times.percentile(99)
    return figures


if __name__ == "__main__":
    main()
