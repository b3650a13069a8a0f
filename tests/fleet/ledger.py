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
from service.core.clock import utc_now
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.talking import PLAIN

EVENTS: Final = "/api/v1/admin/orgs/acme/audit/events"
BATCH: Final = 20
DAYS: Final = 3
LOOKS: Final = (
    "/api/v1/admin/orgs/acme/audit?limit=100",
    "/api/v1/admin/orgs/acme/audit/summary",
    "/api/v1/admin/orgs/acme/oidc-bindings",
    "/admin/ui/orgs/acme/audit",
    "/readyz",
)
ANSWER_MAX_S: Final = 30.0
"""A request without an answer for so long has hung: what is gone must be said sooner."""

STORED_MAX_S: Final = 300.0
"""A change that is not stored for so long never will be: no fault lasts as long."""

UNAVAILABLE: Final = frozenset({429, 503, 507})
SILENT: Final = "503 without Retry-After"
"""Counted in `answers` beside the statuses: there must be none."""


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
class Client:
    """Sends requests to `url` from a thread of its own until it is stopped, and counts answers."""

    name: str
    url: str
    answers: Counter[int | str] = field(default_factory=Counter)
    """How many answers had which status; by the error's name, connections that broke."""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive(), f"{self.name} does not get an answer: {self.answers}"
        if self._failed:
            raise self._failed[0]

    def step(self, client: httpx2.Client, number: int) -> None:
        """What is done again and again."""
        raise NotImplementedError

    def _run(self) -> None:
        number = 0
        try:
            with fleet_client(self.url) as client:
                while not self._stop.is_set():
                    self.step(client, number)
                    number += 1
        except BaseException as error:
            self._failed.append(error)

    def ask(
        self, client: httpx2.Client, method: str, path: str, **given: Any
    ) -> httpx2.Response | None:
        """The answer, which is counted; None if the connection broke. Raises TimeoutException."""
        try:
            answer = client.request(method, path, **given)
        except httpx2.TimeoutException:
            raise
        except httpx2.TransportError as error:
            self.answers[type(error).__name__] += 1
            return None
        self.answers[answer.status_code] += 1
        if answer.status_code == 503 and not int(answer.headers.get("retry-after", 0)):
            self.answers[SILENT] += 1
        return answer


class Reader(Client):
    """Looks at the log, at a day of it, at the pages and at the nodes' readiness in turn."""

    def step(self, client: httpx2.Client, number: int) -> None:
        """One look, whatever becomes of it: what is stored is compared at the end."""
        self.ask(client, "GET", LOOKS[number % len(LOOKS)])
        time.sleep(0.05)


@dataclass
class Writer(Client):
    """Sends batches of rows and adds bindings, each again until it is answered.

    A batch has an idempotency key; of a binding sent again, a 409 says that it was added before.
    """

    rows: list[str] = field(default_factory=list)
    """Package names of acknowledged rows; no two rows have the same."""
    bindings: list[str] = field(default_factory=list)
    """Subject patterns of acknowledged bindings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chance = random.Random(self.name)

    def step(self, client: httpx2.Client, number: int) -> None:
        if self._chance.random() < 0.2:
            self._add_binding(client, number)
        else:
            self.add_rows(client, number)

    def add_rows(self, client: httpx2.Client, number: int) -> None:
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
        ends_at = time.monotonic() + STORED_MAX_S
        while True:
            assert time.monotonic() < ends_at, f"{self.name} stores nothing: {self.answers}"
            answer = self.ask(client, "POST", path, json=body, headers=headers)
            if answer is not None and answer.status_code not in UNAVAILABLE:
                return answer
            time.sleep(0.05 if answer is None else 0.1)
