"""What happens to a fleet, and how long it takes until every node works again."""

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median

import httpx2

from tests.fleet.fleet import Fleet, Node
from tests.fleet.ledger import SILENT, Client, Writer, fleet_client
from tests.polling import HANG_S, eventually
from tests.proc_files import catches_sigterm

GOAL_S = 20.0
"""Within this time of a fault's end every node should work again; printed, not asserted."""


def is_whole(client: httpx2.Client) -> bool:
    """True once all rows can be read."""
    path = "/api/v1/admin/orgs/acme/audit"
    return all(
        client.get(path, params={"limit": 1000, "order": order}).status_code == 200
        for order in ("asc", "desc")
    )


@dataclass
class Faults:
    """Faults of `fleet`, with what each did: recovery times and exit codes.

    `hang_s` chooses how long a server hangs. `name` begins the names of the packages that are
    stored to see whether a node works.
    """

    fleet: Fleet
    chance: random.Random
    hang_s: Callable[[random.Random], float]
    name: str = "probe"
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """By the fault's name, the seconds from its end until every node worked again."""
    exit_codes: Counter[int] = field(default_factory=Counter)
    """Of the nodes that were asked to stop."""
    stops: list[float] = field(default_factory=list)
    """How long each took to stop."""

    def __post_init__(self) -> None:
        self.probes = [
            Writer(f"{self.name}-{number}", node.url)
            for number, node in enumerate(self.fleet.nodes)
        ]

    def run(self, fault: Callable[["Faults"], None]) -> float:
        """Let it happen; the seconds from its end until every node has stored and shown rows."""
        fault(self)
        ended_at = time.monotonic()
        number = sum(map(len, self.recoveries.values()))
        with ThreadPoolExecutor(len(self.probes)) as threads:
            nodes = zip(self.fleet.nodes, self.probes, strict=True)
            for work in [threads.submit(_work, node, probe, number) for node, probe in nodes]:
                work.result()
        took_s = time.monotonic() - ended_at
        self.recoveries.setdefault(fault.__name__, []).append(took_s)
        return took_s

    def a_node(self) -> Node:
        return self.chance.choice(self.fleet.nodes)

    def stop(self, node: Node) -> None:
        """Ask it to stop, and note its exit code."""
        began_at = time.monotonic()
        self.exit_codes[node.stop()] += 1
        self.stops.append(time.monotonic() - began_at)

    def summary(self, clients: list[Client]) -> str:
        """A table of the faults, and the answers that `clients` and the probes got."""
        lines = ["", f"{'fault':34} {'times':>5} {'median':>8} {'longest':>8}   until all work"]
        for name, took in sorted(self.recoveries.items()):
            lines.append(f"{name:34} {len(took):5} {median(took):6.1f} s {max(took):6.1f} s")
        longest = max((s for took in self.recoveries.values() for s in took), default=0.0)
        lines.append(f"longest recovery: {longest:.1f} s (goal: {GOAL_S:.0f} s)")
        stop_s = max(self.stops, default=0.0)
        lines.append(f"exit codes of stops: {dict(self.exit_codes)}, longest {stop_s:.1f} s")
        answers = self.answers(clients)
        lines.append(f"503 without Retry-After: {answers[SILENT]} of {answers[503]}")
        lines.append(f"answers: {dict(sorted(answers.items(), key=str))}")
        return "\n".join(lines)

    def answers(self, clients: list[Client]) -> Counter[int | str]:
        counted: Counter[int | str] = Counter()
        for client in [*clients, *self.probes]:
            counted += client.answers
        return counted


def _work(node: Node, probe: Writer, number: int) -> None:
    """Return once `node` has stored rows, and has shown all."""
    node.check_runs()
    with fleet_client(node.url) as client:
        probe.add_rows(client, number)
        eventually(lambda: is_whole(client), "it recovers by itself", HANG_S, 0.1)


def kill_a_node(faults: Faults) -> None:
    """Its recovery is its start."""
    node = faults.a_node()
    node.kill()
    time.sleep(faults.chance.uniform(0, 1))
    node.begin()


def pause_a_node(faults: Faults) -> None:
    """Also for longer than a lease: its holder must not go on with what others have taken over."""
    with faults.a_node().paused():
        time.sleep(faults.chance.uniform(0, 8))


def roll_a_node(faults: Faults) -> None:
    """As an upgrade does it."""
    node = faults.a_node()
    faults.stop(node)
    node.begin()


def stop_a_node_that_starts(faults: Faults) -> None:
    """At any moment from that on at which it can know of signals."""
    node = faults.a_node()
    faults.stop(node)
    server = node.begin()
    eventually(lambda: catches_sigterm(server.process.pid), "it has begun")
    time.sleep(faults.chance.uniform(0, 3))
    faults.stop(node)
    node.begin()


def stop_a_node_twice(faults: Faults) -> None:
    """An impatient operator, or an orchestrator with a hook of its own."""
    node = faults.a_node()
    assert node.server is not None
    node.server.terminate()
    time.sleep(faults.chance.uniform(0, 0.5))
    faults.stop(node)
    node.begin()


def crash_the_database(faults: Faults) -> None:
    """Its recovery is ours, too: it replays its log."""
    faults.fleet.postgres.stop(is_crash=True)
    time.sleep(faults.chance.uniform(0, 3))
    faults.fleet.postgres.start()


def stop_the_database(faults: Faults) -> None:
    """As an upgrade of it does."""
    faults.fleet.postgres.stop()
    time.sleep(faults.chance.uniform(0, 3))
    faults.fleet.postgres.start()


def kill_the_bucket(faults: Faults) -> None:
    """Its server; what it stored stays."""
    faults.fleet.objects.kill()
    time.sleep(faults.chance.uniform(0, 3))
    faults.fleet.objects.start()


def hang_the_database(faults: Faults) -> None:
    """Every process of it: connections stay, new ones are taken by the kernel, nothing answers."""
    with faults.fleet.postgres.paused():
        time.sleep(faults.hang_s(faults.chance))


def hang_the_bucket(faults: Faults) -> None:
    """As the database."""
    with faults.fleet.objects.paused():
        time.sleep(faults.hang_s(faults.chance))


def roll_while_the_database_hangs(faults: Faults) -> None:
    """A node is stopped in the hang, and started in it."""
    with faults.fleet.postgres.paused():
        time.sleep(faults.chance.uniform(0, 3))
        roll_a_node(faults)
        time.sleep(faults.hang_s(faults.chance))


def roll_while_the_bucket_hangs(faults: Faults) -> None:
    """As above; work of its threads is under way."""
    with faults.fleet.objects.paused():
        time.sleep(faults.chance.uniform(0, 3))
        roll_a_node(faults)
        time.sleep(faults.hang_s(faults.chance))


ALL: tuple[Callable[[Faults], None], ...] = (
    kill_a_node,
    pause_a_node,
    roll_a_node,
    stop_a_node_that_starts,
    stop_a_node_twice,
    crash_the_database,
    stop_the_database,
    kill_the_bucket,
    hang_the_database,
    hang_the_bucket,
    roll_while_the_database_hangs,
    roll_while_the_bucket_hangs,
)
