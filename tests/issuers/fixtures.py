"""An issuer in a process of its own, as tests see it."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.issuers.server import KEYS, Outage
from tests.talking import TalkingProcess


class IssuerProcess(TalkingProcess):
    """A running issuer. Starts with the process's own clock and nothing wrong with it."""

    def __init__(self) -> None:
        super().__init__("tests.issuers.server")

    def sign(
        self, *, header: dict[str, Any] | None = None, now: datetime | None = None, **claims: Any
    ) -> str:
        """As `Issuer.sign`: a good token of `now` with these changes; `...` takes a member out."""
        header = header or {}
        return self.tell(
            "/sign",
            now=None if now is None else now.isoformat(),
            header={name: value for name, value in header.items() if value is not ...},
            claims={name: value for name, value in claims.items() if value is not ...},
            without_header=[name for name, value in header.items() if value is ...],
            without_claims=[name for name, value in claims.items() if value is ...],
        )

    def rotate(self, name: str) -> None:
        """Sign with the new key `name`; the old one stays published beside it."""
        self.tell("/rotate", name=name)

    def publish(self, jwks: dict[str, Any]) -> None:
        """Make `jwks` the key set, whatever tokens are signed with."""
        self.tell("/publish", jwks=jwks)

    def break_down(self, outage: Outage) -> None:
        self.tell("/outage", outage=outage)

    def requests(self) -> dict[str, int]:
        return dict(self.tell("/requests"))

    @property
    def key_requests(self) -> int:
        """How often its keys were asked for."""
        return self.requests().get(KEYS, 0)

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
        """An issuers file in `folder` that accepts it alone."""
        path = folder / "issuers.toml"
        path.write_text(self.table())
        return path


@pytest.fixture
def issuer_process() -> Iterator[IssuerProcess]:
    """An issuer in a process of its own, which ends with the test."""
    process = IssuerProcess()
    try:
        yield process
    finally:
        process.stop()
