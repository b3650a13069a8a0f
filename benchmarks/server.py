"""A server for a benchmark: a fresh data dir, a free port, a separate process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

ADMIN_TOKEN = "benchmark-admin-token"
ADMIN = {"x-service-admin-token": ADMIN_TOKEN}
READY_WITHIN_S = 600.0


class ServerClient(httpx2.Client):
    """A client, with the admin token, that knows the server's process."""

    def __init__(self, base_url: str, process_id: int) -> None:
        super().__init__(base_url=base_url, headers=ADMIN, timeout=60)
        self.process_id = process_id


@contextmanager
def running_server(
    data_dir: Path,
    settings: dict[str, str] | None = None,
    module: str = "service.cli.main",
    python: str = sys.executable,
    folder: Path | None = None,
) -> Iterator[ServerClient]:
    """A client, with the admin token, of a server over `data_dir`.

    `settings` are additional environment variables, `module` is what runs `serve`, with `python`
    in `folder`: by default this one and the current one.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "COUNTERSIGN_DATA_DIR": str(data_dir),
        "COUNTERSIGN_PORT": str(port),
        "COUNTERSIGN_ADMIN_TOKEN": ADMIN_TOKEN,
        "COUNTERSIGN_LOG_LEVEL": "warning",
        # An installed service has its bytecode: to compile takes longer than the rest of a start.
        "PYTHONDONTWRITEBYTECODE": "",
        **(settings or {}),
    }
    process = subprocess.Popen([python, "-m", module, "serve"], env=environment, cwd=folder)
    try:
        with ServerClient(f"http://127.0.0.1:{port}", process.pid) as client:
            _wait_until_ready(client)
            yield client
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(client: httpx2.Client) -> None:
    gives_up_at = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        if time.monotonic() > gives_up_at:
            raise TimeoutError("the server did not get ready")
        time.sleep(0.01)
