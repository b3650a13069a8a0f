"""Writers that keep a ledger of what they were told, to be compared with what is stored."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import httpx2

from analytics.model.instants import format_us
from service.clock import utc_now
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.talking import PLAIN

EVENTS: Final = "/api/v1/admin/orgs/acme/audit/events"
BATCH: Final = 20
DAYS: Final = 3
ANSWER_MAX_S: Final = 30.0
"""A request without an answer for so long has hung: what is gone must be said sooner."""

UNAVAILABLE: Final = frozenset({429, 503, 507})


def fleet_client(url: str) -> httpx2.Client:
    """A client with the admin token and a new connection for each request, so nodes take turns."""
    return httpx2.Client(
        base_url=url,
        headers={"x-service-admin-token": ADMIN_TOKEN},
        limits=httpx2.Limits(max_keepalive_connections=0),
        timeout=ANSWER_MAX_S,
        trust_env=False,
        verify=PLAIN,
    )


@dataclass
class Writer:
    """Sends batches of rows and adds bindings, each again until it is answered.

    A batch has an idempotency key; of a binding sent again, a 409 says that it was added before.
    """

    name: str
    url: str
    rows: list[str] = field(default_factory=list)
    """Package names of acknowledged rows; no two rows have the same."""
    bindings: list[str] = field(default_factory=list)
    """Subject patterns of acknowledged bindings."""
    answers: Counter[int | str] = field(default_factory=Counter)
    """How many answers had which status; by the error's name, connections that broke."""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way; raises what went wrong."""
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive(), f"{self.name} does not get an answer: {self.answers}"
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        chance = random.Random(self.name)
        number = 0
        try:
            with fleet_client(self.url) as client:
                while not self._stop.is_set():
                    if chance.random() < 0.2:
                        self._add_binding(client, number)
                    else:
                        self._add_rows(client, number)
                    number += 1
        except BaseException as error:
            self._failed.append(error)

    def _add_rows(self, client: httpx2.Client, number: int) -> None:
        now = utc_now()
        names = [f"{self.name}/{number}/{item}" for item in range(BATCH)]
        items = [
            {
                "event": "install_allowed",
                "packageName": name,
                "created_at": format_us(now - timedelta(days=item % DAYS)),
            }
            for item, name in enumerate(names)
        ]
        headers = {"idempotency-key": f"{self.name}/{number}"}
        answer = self._until_answered(client, EVENTS, items, headers)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"accepted": BATCH, "rejected": []}
        self.rows += names

    def _add_binding(self, client: httpx2.Client, number: int) -> None:
        pattern = f"repo:acme/{self.name}-{number}"
        body = binding_body(sub_pattern=pattern)
        answer = self._until_answered(client, bindings_path(), body, {})
        assert answer.status_code in {201, 409}, answer.text
        self.bindings.append(pattern)

    def _until_answered(
        self, client: httpx2.Client, path: str, body: Any, headers: dict[str, str]
    ) -> httpx2.Response:
        """The first answer that is not "try again"."""
        while True:
            try:
                answer = client.post(path, json=body, headers=headers)
            except httpx2.TimeoutException:
                raise
            except httpx2.TransportError as error:
                self.answers[type(error).__name__] += 1
                time.sleep(0.05)
                continue
            self.answers[answer.status_code] += 1
            if answer.status_code not in UNAVAILABLE:
                return answer
            time.sleep(0.1)
