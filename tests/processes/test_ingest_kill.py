"""Pulling the plug on ingest: after kill -9 and a retry every row is there, and once."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from analytics.model.instants import format_us
from service.core.clock import utc_now
from tests.budgets import budget
from tests.processes.homes import Home, Server, all_entries, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATH = "/api/v1/admin/orgs/acme/audit/events"
KILLS = budget(1, 52)
CLIENTS = 4
BATCH = 25
DAYS = 3
WORK = ("segment_sealed", "segments_merged", "segments_unlinked")
"""What goes on behind ingest; each kill waits until the server has logged one of them."""

EAGER = {
    "seal_rows": "1",
    "seal_interval_s": "0.05",
    "compact_quiet_s": "0.01",
    "sweep_interval_s": "0.05",
    "orphan_grace_s": "0.5",
    "export_max_s": "0.1",
    "query_max_s": "0.1",
}
"""Sealing, merging and unlinking all the time, so that many kills hit them."""


@dataclass
class Proxy:
    """A client that keeps each batch, and its key, until it is answered."""

    name: str
    batch: int = 0
    answered: list[str] = field(default_factory=list)
    unsent: list[dict[str, Any]] = field(default_factory=list)
    unanswered: int = 0

    def items(self) -> list[dict[str, Any]]:
        """The current batch, over several days; no other has a package of the same name."""
        now = utc_now()
        return [
            {
                "event": "install_allowed",
                "packageName": f"{self.name}/{self.batch}/{number}",
                "created_at": format_us(now - timedelta(days=number % DAYS)),
            }
            for number in range(BATCH)
        ]

    def send_until_cut_off(self, server: Server) -> None:
        """Send batch after batch, until the server is gone."""
        with server.client() as client:
            while True:
                try:
                    self.send(client)
                except httpx2.TransportError:
                    self.unanswered += 1
                    return

    def send(self, client: httpx2.Client) -> None:
        """Send the current batch under its key; once it is answered, go on to the next."""
        self.unsent = items = self.unsent or self.items()  # again, byte for byte
        answer = client.post(
            PATH, json=items, headers={"idempotency-key": f"{self.name}/{self.batch}"}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"accepted": BATCH, "rejected": []}
        self.answered += [item["packageName"] for item in items]
        self.batch += 1
        self.unsent = []


def kill_amid_ingest(server: Server, proxies: list[Proxy], chance: random.Random) -> None:
    """Let all proxies send, and kill the server soon after it has begun to work behind them."""
    senders = [
        threading.Thread(target=proxy.send_until_cut_off, args=(server,)) for proxy in proxies
    ]
    for principal in senders:
        principal.start()
    done = chance.choice(WORK)
    eventually(lambda: done in server.logged(), done, every_s=0.005)
    time.sleep(chance.uniform(0, 0.1))  # the moment of the kill, and nothing that is waited for
    server.kill()
    for principal in senders:
        principal.join()


def test_a_killed_server_has_every_answered_row_once(home: Home) -> None:
    seed = 20261120
    chance = random.Random(seed)
    proxies = [Proxy(f"proxy-{number}") for number in range(CLIENTS)]
    for _ in range(KILLS):
        kill_amid_ingest(home.serve(**EAGER), proxies, chance)
    survivor = home.serve(**EAGER | {"query_max_s": "30"})
    with survivor.client() as client:
        for proxy in proxies:
            proxy.send(client)  # the batch that was cut off last
        rows = all_entries(client, event="install_allowed", limit=997)

    answered = [name for proxy in proxies for name in proxy.answered]
    assert Counter(row["packageName"] for row in rows) == Counter(answered), f"seed {seed}"
    assert len({row["id"] for row in rows}) == len(rows)
    assert sum(proxy.unanswered for proxy in proxies) == KILLS * CLIENTS
    assert len(answered) > KILLS * BATCH, "every kill came before a client could do anything"
