"""An issuer in a process of its own, as tests see it."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.settings import REPOSITORY
from tests.issuers.server import DISCOVERY, KEYS, Outage

ANSWER_S = 30.0
"""How long anything may take that should take no time: this machine may be busy."""


class IssuerProcess:
    """A running issuer. Starts with the process's own clock and nothing wrong with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.issuers.server"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=ANSWER_S)

    def sign(
        self, *, header: dict[str, Any] | None = None, now: datetime | None = None, **claims: Any
    ) -> str:
        """As `Issuer.sign`: a good token of `now` with these changes; `...` takes a member out."""
        header = header or {}
        return self._order(
            "sign",
            now=None if now is None else now.isoformat(),
            header={name: value for name, value in header.items() if value is not ...},
            claims={name: value for name, value in claims.items() if value is not ...},
            without_header=[name for name, value in header.items() if value is ...],
            without_claims=[name for name, value in claims.items() if value is ...],
        )

    def rotate(self, name: str) -> None:
        """Sign with the new key `name`; the old one stays published beside it."""
        self._order("rotate", name=name)

    def publish(self, jwks: dict[str, Any]) -> None:
        """Make `jwks` the key set, whatever tokens are signed with."""
        self._order("publish", jwks=jwks)

    def break_down(self, outage: Outage) -> None:
        """Have `outage` from now on; `Outage.NONE` ends it."""
        self._order("outage", outage=outage)

    def requests(self) -> dict[str, int]:
        """How often each path was asked for."""
        return dict(self._order("requests"))

    @property
    def key_requests(self) -> int:
        """How often its keys were asked for."""
        return self.requests().get(KEYS, 0)

    @property
    def discoveries(self) -> int:
        """How often its configuration was asked for."""
        return self.requests().get(DISCOVERY, 0)

    def table(self, name: str = "github", **changes: str) -> str:
        """Its table for an issuers file, with the claims of GitHub's tokens.

        `changes` are values as TOML writes them.
        """
        values = {
            "url": f'"{self.url}"',
            "provider": '"github"',
            "accepted": "true",
            "algorithms": '["RS256"]',
            "requires_repository_id": "true",
            "repository_id_claim": '"repository_id"',
            "event_name_claim": '"event_name"',
            "run_id_claim": '"run_id"',
            "owner_claim": '"repository_owner"',
        } | changes
        return "\n".join([f"[{name}]", *(f"{key} = {value}" for key, value in values.items()), ""])

    def file(self, folder: Path) -> Path:
        """An issuers file in `folder` that accepts it and nobody else."""
        path = folder / "issuers.toml"
        path.write_text(self.table())
        return path

    def stop(self) -> None:
        """End it; its port answers nobody any more."""
        self._http.close()
        self._process.communicate()

    def _order(self, name: str, /, **order: Any) -> Any:
        answer = self._http.post(f"/{name}", json=order)
        assert answer.status_code == 200, f"the issuer did not {name}"
        return answer.json()


@pytest.fixture
def issuer_process() -> Iterator[IssuerProcess]:
    """An issuer in a process of its own, which ends with the test."""
    process = IssuerProcess()
    try:
        yield process
    finally:
        process.stop()
