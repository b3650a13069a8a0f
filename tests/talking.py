"""A server of the tests' own: a process that says where it listens, and does what it is told."""

import ssl
import subprocess
from typing import Any, Final

import httpx2

from tests.interpreters import start_module

ANSWER_S = 30.0
"""How long anything may take that should take no time: this machine may be busy."""


PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: to load all authorities takes 40 ms for each client."""


class TalkingProcess:
    """`python -m module`, which prints its URL first and ends with its standard input."""

    def __init__(self, module: str) -> None:
        pipe = subprocess.PIPE
        self._process = start_module(module, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.http = httpx2.Client(
            base_url=self.url, trust_env=False, timeout=ANSWER_S, verify=PLAIN
        )

    def tell(self, path: str, /, **order: Any) -> Any:
        """Its answer to `order`, which it must understand."""
        answer = self.http.post(path, json=order)
        assert answer.status_code == 200, f"{path} was answered with {answer.status_code}"
        return answer.json()

    def stop(self) -> None:
        """End it; its port does not answer any more."""
        self.http.close()
        self._process.communicate()
