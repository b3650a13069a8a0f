"""PostgreSQL or the bucket's server hangs (SIGSTOP): 503 in time, and every node comes back."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import httpx2
import pytest

from tests.budgets import only_full
from tests.fleet.faults import Faults, hang_the_bucket, hang_the_database
from tests.fleet.fleet import Fleet
from tests.fleet.ledger import SILENT, Reader, Writer, fleet_client
from tests.proc_files import has_unread_bytes
from tests.processes.homes import all_entries, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "seconds",
    [3, pytest.param(30, marks=only_full), pytest.param(120, marks=only_full)],
    ids="{} s".format,
)
@pytest.mark.parametrize("hang", [hang_the_database, hang_the_bucket])
def test_every_node_works_again_after_a_hang(
    shared_fleet: Fleet, hang: Callable[[Faults], None], seconds: int
) -> None:
    fleet, name = shared_fleet, f"{hang.__name__}-{seconds}"
    writers = [Writer(f"{name}-writer-{number}", fleet.url) for number in range(2)]
    clients = [*writers, Reader("reader", fleet.url)]
    faults = Faults(fleet, random.Random(seconds), lambda _: seconds, f"{name}-probe")
    for client in clients:
        client.start()
    eventually(lambda: all(client.answers for client in clients), "each client sends requests")

    faults.run(hang)

    for client in clients:
        client.stop()
    print(faults.summary(clients))  # noqa: T201 - with -s
    answers = faults.answers(clients)
    if hang is hang_the_database:  # without the bucket rows go to the journal, and pages are cached
        assert answers[503] > 0
    assert answers[SILENT] == 0
    sent = Counter(name for writer in [*writers, *faults.probes] for name in writer.rows)
    for node in fleet.nodes:
        node.check_runs()
        with fleet_client(node.url) as client:
            named = [row["packageName"] or "" for row in all_entries(client, limit="1000")]
            assert Counter(package for package in named if package.startswith(name)) == sent


def test_a_stop_does_not_wait_for_a_bucket_that_hangs(shared_fleet: Fleet) -> None:
    """A request to the bucket may take an hour here."""
    node, other = shared_fleet.nodes
    assert (node.stop(), other.stop()) == (0, 0)
    node.start(segments_wait_s="3600", shutdown_grace_s="0.5")
    objects = shared_fleet.objects
    with objects.paused(), fleet_client(node.url) as client:
        Writer("sealed", node.url).add_rows(client, 0)  # a thread of the node uploads them
        eventually(lambda: has_unread_bytes(objects.port), "a request waits")
        assert node.stop() == 0
    servers = [stopped.begin() for stopped in (node, other)]
    for server in servers:
        server.wait_ready()


@pytest.mark.parametrize(
    ("place", "workers"),
    [
        ("database", "1"),
        pytest.param("database", "2", marks=only_full),
        pytest.param("bucket", "1", marks=only_full),
    ],
)
def test_a_node_is_stopped_and_started_during_a_hang(
    shared_fleet: Fleet, place: str, workers: str
) -> None:
    server = shared_fleet.postgres if place == "database" else shared_fleet.objects
    node = shared_fleet.nodes[0]

    def answer() -> httpx2.Response | None:
        with suppress(httpx2.TransportError), fleet_client(node.url) as client:
            return client.get("/readyz")
        return None

    with server.paused():
        assert node.server is not None
        node.server.terminate()
        assert node.stop() == 0
        node.begin(workers=workers)
        refused = eventually(answer, "an answer")
        if place == "database":
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert node.stop() == 0
        node.begin(workers=workers)
    node.server.wait_ready()
    assert node.stop() == 0
    node.start()
