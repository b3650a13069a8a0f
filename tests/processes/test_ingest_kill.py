"""Pulling the plug on ingest: after kill -9 and a retry every row is there, and once."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.processes.homes import Home, Server, all_entries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATH = "/api/v1/admin/orgs/acme/audit/events"
KILLS = 21
CLIENTS = 4
BATCH = 25
EAGER = {"seal_rows": "1", "seal_interval_s": "0.05", "orphan_grace_s": "0.5"}
"""A sealer at work all the time, so that many kills hit it."""


@dataclass
class Proxy:
    """A client that keeps each batch, and its key, until it is answered."""

    name: str
    batch: int = 0
    answered: list[str] = field(default_factory=list)
    unanswered: int = 0

    def items(self) -> list[dict[str, Any]]:
        """The current batch; no other has a package of the same name."""
        return [
            {"event": "install_allowed", "packageName": f"{self.name}/{self.batch}/{number}"}
            for number in range(BATCH)
        ]

    def send_until_cut_off(self, server: Server) -> None:
        """Send batch after batch, until the server is gone."""
        with server.client() as client:
            while True:
                try:
                    self.send(client)
                except httpx.TransportError:
                    self.unanswered += 1
                    return

    def send(self, client: httpx.Client) -> None:
        """Send the current batch under its key; once it is answered, go on to the next."""
        items = self.items()
        answer = client.post(
            PATH, json=items, headers={"idempotency-key": f"{self.name}/{self.batch}"}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"accepted": BATCH, "rejected": []}
        self.answered += [item["packageName"] for item in items]
        self.batch += 1


def kill_amid_ingest(server: Server, proxies: list[Proxy], chance: random.Random) -> None:
    """Let all proxies send, and kill the server at a random moment."""
    senders = [
        threading.Thread(target=proxy.send_until_cut_off, args=(server,)) for proxy in proxies
    ]
    for sender in senders:
        sender.start()
    time.sleep(chance.uniform(0.02, 0.5))  # the moment of the kill, and nothing that is waited for
    server.kill()
    for sender in senders:
        sender.join()


def test_a_killed_server_has_every_answered_row_once(home: Home) -> None:
    """What was answered survives, and what was sent again under its key is not doubled."""
    seed = 20261120
    chance = random.Random(seed)
    proxies = [Proxy(f"proxy-{number}") for number in range(CLIENTS)]
    for _ in range(KILLS):
        kill_amid_ingest(home.serve(**EAGER), proxies, chance)
    survivor = home.serve(**EAGER)
    with survivor.client() as client:
        for proxy in proxies:
            proxy.send(client)  # the batch that was cut off last
        rows = all_entries(client, event="install_allowed", limit=997)

    answered = [name for proxy in proxies for name in proxy.answered]
    assert Counter(row["packageName"] for row in rows) == Counter(answered), f"seed {seed}"
    assert len({row["id"] for row in rows}) == len(rows)
    assert sum(proxy.unanswered for proxy in proxies) == KILLS * CLIENTS
    assert len(answered) > KILLS * BATCH, "every kill came before a client could do anything"
    assert list(home.data_dir.rglob("*.parquet")), "every kill came before the sealer"
