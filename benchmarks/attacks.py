"""Attacks of one organisation on the time of the others, for `bench_fairness`.

An attack sends requests of organisation A, with the admin token or its install key, from its own
process. To add one, write a function of an `Attacker` that returns when `is_over`, and name it in
ATTACKS.
"""

import json
import random
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Final

from benchmarks.client import Answer, Client
from benchmarks.served import SLUG
from benchmarks.server import ADMIN
from benchmarks.slow_registry import FILE
from tests.package_documents import SIMPLE

API: Final = f"/api/v1/admin/orgs/{SLUG}"
PAGES: Final = f"/admin/ui/orgs/{SLUG}"
ALLY: Final = "ally"
"""The slug of an organisation that helps A."""

GROUPS: Final = f"{API}/audit/groups?by=package&by=actor&by=version&limit=1000"
_JSON: Final = "application/json"
_PIECE_BYTES: Final = 1 << 18


@dataclass(frozen=True)
class Attacker:
    """One thread of an attack; `number` tells it from the others."""

    port: int
    keys: tuple[str, str]
    """With which A installs, and with which an organisation does that helps it."""

    number: int
    over: Event
    round: int = 0
    """How often the attack ran before."""

    @property
    def is_over(self) -> bool:
        """True when it must end."""
        return self.over.is_set()

    def repeat(self, request: Callable[[Client, int], Answer]) -> None:
        """Send requests until it is over; each is given its place in the row."""
        sent = 0
        while not self.is_over:
            # A server that is flooded may close the connection.
            with suppress(OSError), Client(self.port, ADMIN, timeout_s=120.0) as client:
                while not self.is_over:
                    answer = request(client, sent)
                    sent += 1
                    if answer.status in {429, 503}:
                        self.over.wait(0.2)


def group(attacker: Attacker) -> None:
    """Groupings by three columns over all rows."""
    attacker.repeat(lambda client, _: client.get(GROUPS))


def export(attacker: Attacker) -> None:
    """Exports of all rows, compressed."""
    target = f"{API}/audit/export?format=csv&compress=zstd"
    attacker.repeat(lambda client, _: client.get(target))


WORST_SQL: Final = (
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "SELECT count(*) FROM audit a, audit b WHERE a.payload < b.payload",
    "SELECT * FROM audit ORDER BY payload, id",
    "SELECT repeat('x', 4_000_000_000)",
    "SELECT count(DISTINCT payload || id), count(DISTINCT subject || id) FROM audit",
    "SELECT list(payload ORDER BY id) FROM audit",
    "SELECT sum(a.n * b.n) FROM range(10_000_000) a(n), range(10_000_000) b(n)",
    "SELECT count(*) FROM audit WHERE regexp_matches(payload || id, '(a*)*b$')",
)
"""Statements that do not end, need more memory than there is, or read all rows."""

AFTER_FIRST_S: Final = 0.5
"""How much later than the first statement of a round the others are sent."""


def ask_in_sql(attacker: Attacker) -> None:
    """The worst statements in SQL, one for each thread; in each round another one is the first.

    It may run as long as the attack does, and of one organisation one runs at a time.
    """
    if attacker.number:
        attacker.over.wait(AFTER_FIRST_S)
    sql = WORST_SQL[(attacker.number + attacker.round) % len(WORST_SQL)]
    body = json.dumps({"sql": sql}).encode()
    attacker.repeat(lambda client, _: client.ask("POST", f"{API}/audit/sql", body, _JSON))


def not_run(client: Client) -> list[str]:
    """Those of WORST_SQL that never ran: each run is a row."""
    answer = client.get(f"{API}/audit?event=audit_sql_run&limit=1000")
    assert answer.status == 200, answer.body
    ran = {row["payload"]["sql"] for row in json.loads(answer.body)["entries"]}
    return [sql for sql in WORST_SQL if sql not in ran]


def summarise(attacker: Attacker) -> None:
    """Summaries by hour of rows that no index counts."""
    attacker.repeat(
        lambda client, sent: client.get(
            f"{API}/audit/summary?bucket=hour&until=2026-12-31&version=!{sent}.{attacker.number}"
        )
    )


def filter_texts(attacker: Attacker) -> None:
    """Oldest pages under filters by prefix, each another one."""
    attacker.repeat(
        lambda client, sent: client.get(
            f"{API}/audit?order=asc&limit=1000&subject=repo:acme-{sent % 37}/*"
            f"&actor=!key_{attacker.number}{sent}*"
        )
    )


def find_unknown(attacker: Attacker) -> None:
    """Ten misspelt values at a time, each looked up in other columns."""
    attacker.repeat(
        lambda client, sent: client.get(
            f"{API}/audit/unknown-values?"
            + "&".join(f"package=reac{attacker.number}x{sent}y{place}" for place in range(10))
        )
    )


def preview(attacker: Attacker) -> None:
    """Previews of a policy with 300 rules."""
    rules = [
        {"ecosystem": "npm", "package": f"package-{number}*", "versions": [f"<1.{number}.3"]}
        for number in range(300)
    ]
    body = json.dumps({"deny": rules, "cooldown": {"min_age_days": 7}}).encode()
    attacker.repeat(lambda client, _: client.ask("POST", f"{API}/policy/preview", body, _JSON))


def complete(attacker: Attacker) -> None:
    """What a person's typing asks for, without a person's pauses."""
    attacker.repeat(
        lambda client, sent: client.get(
            f"{PAGES}/audit/values?name=package&prefix={'abcdefghijklmnopqrstuvwxyz'[sent % 26]}"
        )
    )


def send_invalid(attacker: Attacker) -> None:
    """Requests that are refused at once: all of their time is the event loop's."""
    attacker.repeat(lambda client, _: client.get(f"{PAGES}/audit/values?name=unknown"))


def view(attacker: Attacker) -> None:
    """Audit pages with their summaries, of another window each time."""
    attacker.repeat(
        lambda client, sent: client.get(
            f"{PAGES}/audit?since=2026-01-{sent % 28 + 1:02}&until=2026-03-{sent % 28 + 1:02}"
            f"&actor=!key_{attacker.number}{sent}*"
        )
    )


def items(rows: int) -> bytes:
    """Rows to send, of many releases."""
    return json.dumps(
        [
            {
                "event": "install_allowed",
                "packageName": f"package-{random.randrange(5_000)}",  # noqa: S311 - no secret
                "version": f"1.{row % 50}.{row % 7}",
                "ecosystem": "npm",
            }
            for row in range(rows)
        ]
    ).encode()


def ingest(attacker: Attacker) -> None:
    """Requests of 1,000 rows."""
    bodies = [items(1_000) for _ in range(8)]
    attacker.repeat(
        lambda client, sent: client.ask("POST", f"{API}/audit/events", bodies[sent % 8], _JSON)
    )


def watch(attacker: Attacker) -> None:
    """Fifty pages of live rows, and twenty new rows five times a second."""
    with selectors.DefaultSelector() as selector:
        for _ in range(50):
            stream = _open_stream(attacker.port)
            selector.register(stream, selectors.EVENT_READ)
        with Client(attacker.port, ADMIN) as client:
            body, send_at = items(20), time.monotonic()
            while not attacker.is_over:
                for key, _ in selector.select(timeout=0.05):
                    if isinstance(key.fileobj, socket.socket):
                        key.fileobj.recv(_PIECE_BYTES)
                if time.monotonic() >= send_at:
                    client.ask("POST", f"{API}/audit/events", body, _JSON)
                    send_at += 0.2
        _close_all(selector)


def _open_stream(port: int) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port), 60)
    headers = "".join(f"{name}: {value}\r\n" for name, value in ADMIN.items())
    head = f"GET {PAGES}/audit/live HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{headers}\r\n"
    stream.sendall(head.encode())
    return stream


def flood_pings(attacker: Attacker) -> None:
    """Pings of HTTP/2 without TLS, as many as the server takes."""
    ping = _frame(6, 0, 0, bytes(8)) * 4_000
    _flood(attacker, lambda _: ping)


def reset_rapidly(attacker: Attacker) -> None:
    """Requests over HTTP/2 without TLS that are reset at once (CVE-2023-44487)."""
    # Method GET, path /, scheme http, and the authority a.
    head = bytes.fromhex("82 84 86 41 01 61")

    def resets(sent: int) -> bytes:
        streams = range(sent * 2_000 + 1, (sent + 1) * 2_000, 2)
        return b"".join(
            _frame(1, 5, stream, head) + _frame(3, 0, stream, b"\0\0\0\x08") for stream in streams
        )

    _flood(attacker, resets)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    fixed = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return fixed + payload


def _flood(attacker: Attacker, frames: Callable[[int], bytes]) -> None:
    """Send frames of HTTP/2, on a new connection whenever the server has closed one."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
    while not attacker.is_over:
        with suppress(OSError), socket.create_connection(("127.0.0.1", attacker.port), 5) as one:
            one.sendall(preface)
            sent = 0
            while not attacker.is_over:
                one.sendall(frames(sent))
                sent += 1


def send_heads_slowly(attacker: Attacker) -> None:
    """Three hundred requests whose headers do not end: a line each second."""
    _hold(attacker, 300, b"GET / HTTP/1.1\r\nhost: a\r\n", b"x-a: b\r\n")


def send_bodies_slowly(attacker: Attacker) -> None:
    """Three hundred requests whose bodies do not end: a byte each second."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in ADMIN.items())
    head = f"POST {API}/audit/events HTTP/1.1\r\nhost: a\r\n{headers}content-length: 9999\r\n\r\n"
    _hold(attacker, 300, head.encode(), b" ")


def read_nothing(attacker: Attacker) -> None:
    """Sixty connections with forty requests each for a long page, of which nothing is read."""
    _hold(attacker, 60, b"GET /docs HTTP/1.1\r\nhost: a\r\n\r\n" * 40, b"")


def download_slowly(attacker: Attacker) -> None:
    """A hundred and forty downloads of as many files, which the registry sends slowly."""
    own, _ = attacker.keys
    with Client(attacker.port, installing(own)) as client:
        path = file_path(client, SLUG, "large")
    names = (f"large_{secrets.token_hex(8)}" for _ in range(140))
    _hold_requests(attacker, [_request(path.replace("large", name), own) for name in names])


def ask_two_registries(attacker: Attacker) -> None:
    """A hundred requests of A to a registry that does not answer, and of an ally to another one."""
    own, of_ally = attacker.keys
    numbers = range(100)
    run = secrets.token_hex(8)
    at_pypi = [f"/proxy/{SLUG}/pypi/simple/hang-{run}-{number}/" for number in numbers]
    at_npm = [f"/proxy/{ALLY}/npm/hang-{run}-{number}" for number in numbers]
    requests = [_request(path, own) for path in at_pypi]
    _hold_requests(attacker, requests + [_request(path, of_ally) for path in at_npm])


def _request(path: str, key: str) -> bytes:
    headers = "".join(f"{name}: {value}\r\n" for name, value in installing(key).items())
    return f"GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n".encode()


def _hold_requests(attacker: Attacker, requests: list[bytes]) -> None:
    """Send each on a connection of its own, and again when it is answered or breaks off."""
    with selectors.DefaultSelector() as selector:
        for request in requests:
            selector.register(_sent(attacker.port, request), selectors.EVENT_READ, request)
        while not attacker.over.wait(0.5):
            for key, _ in selector.select(timeout=0.5):
                if isinstance(key.fileobj, socket.socket):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    again = _sent(attacker.port, key.data)
                    selector.register(again, selectors.EVENT_READ, key.data)
        _close_all(selector)


def _sent(port: int, request: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), 60)
    one.sendall(request)
    return one


def _close_all(selector: selectors.BaseSelector) -> None:
    for key in list(selector.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()


def installing(key: str) -> dict[str, str]:
    """The headers of a package manager."""
    return {"x-service-api-key": key, "accept": SIMPLE}


def file_path(client: Client, slug: str, name: str) -> str:
    """Where the proxy has the file of a project. Raises RegistryBusy."""
    page = client.get(f"/proxy/{slug}/pypi/simple/{name}/")
    if page.status != 200:
        raise RegistryBusy
    url = json.loads(page.body)["files"][0]["url"]
    assert url.endswith(FILE), url
    return f"/proxy{str(url).partition('/proxy')[2]}"


class RegistryBusy(Exception):
    """The proxy could not ask the registry."""


def _hold(attacker: Attacker, connections: int, first: bytes, then: bytes) -> None:
    """Open `connections` that send `first`, and `then` each second; again those that end."""
    held: list[socket.socket] = []
    while not attacker.is_over:
        while len(held) < connections:
            one = socket.create_connection(("127.0.0.1", attacker.port), 5)
            one.sendall(first)
            held.append(one)
        for one in list(held):
            try:
                one.sendall(then)
            except OSError:
                one.close()
                held.remove(one)
        attacker.over.wait(1.0)
    for one in held:
        one.close()


@dataclass(frozen=True)
class Attack:
    """`threads` of one process run `run`. `ratio_max` is the goal for B's newest page.

    Or for an install of B, of a package that is not in the cache, if the attack `is_at_registries`.
    """

    name: str
    run: Callable[[Attacker], None]
    threads: int
    ratio_max: float
    is_at_registries: bool = False
    rounds_min: int = 1
    missed: Callable[[Client], list[str]] | None = None
    """What of the attack never happened, after all rounds."""


WORKS: Final = 3.0
"""The goal where A's work could fill all cores."""

HOLDS: Final = 2.0
"""The goal where A holds connections or streams."""

ATTACKS: Final = (
    Attack("8 groupings", group, 8, WORKS),
    Attack("32 groupings", group, 32, WORKS),
    Attack("8 exports", export, 8, WORKS),
    Attack("50 live streams, 100 rows/s", watch, 1, HOLDS),
    Attack("8 previews of a policy", preview, 8, WORKS),
    Attack("8 × 10 unknown values", find_unknown, 8, WORKS),
    Attack("16 filters by text, oldest first", filter_texts, 16, WORKS),
    Attack("8 statements in SQL", ask_in_sql, 8, WORKS, rounds_min=len(WORST_SQL), missed=not_run),
    Attack("16 summaries without index", summarise, 16, WORKS),
    Attack("16 audit pages", view, 16, WORKS),
    Attack("16 autocompletions", complete, 16, WORKS),
    Attack("16 refused requests", send_invalid, 16, WORKS),
    Attack("ingest flood of 4 clients", ingest, 4, WORKS),
    Attack("ping flood over HTTP/2", flood_pings, 1, HOLDS),
    Attack("rapid resets over HTTP/2", reset_rapidly, 1, HOLDS),
    Attack("300 heads that do not end", send_heads_slowly, 1, HOLDS),
    Attack("300 bodies that do not end", send_bodies_slowly, 1, HOLDS),
    Attack("60 clients that read nothing", read_nothing, 1, HOLDS),
    Attack("140 slow downloads", download_slowly, 1, HOLDS, is_at_registries=True),
    Attack("two slow registries", ask_two_registries, 1, HOLDS, is_at_registries=True),
)
"""Filters by text, audit pages, autocompletions, heads, bodies and clients that read nothing are
ours; the others were found from outside."""
