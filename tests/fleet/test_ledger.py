"""The ledger: whatever dies, each acknowledged change is there, and once, on every node."""

import csv
import io
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from pyiceberg.table import StaticTable

from analytics.model.instants import format_us
from service.clock import utc_now
from tests.budgets import only_full
from tests.fleet.fleet import Fleet
from tests.fleet.ledger import Writer, fleet_client
from tests.processes.homes import all_bindings, all_entries, eventually

SECONDS = float(os.environ.get("LEDGER_S", "60"))
"""How long parts of the fleet die; LEDGER_S=900 is the long run."""

pytestmark = [only_full, pytest.mark.slow, pytest.mark.timeout(SECONDS + 600)]

WRITERS = 4
RECOVERY_MAX_S = 60.0


def kill_a_node(fleet: Fleet, chance: random.Random) -> None:
    node = chance.choice(fleet.nodes)
    node.kill()
    time.sleep(chance.uniform(0, 1))
    node.start()


def pause_a_node(fleet: Fleet, chance: random.Random) -> None:
    """Also for longer than a lease: its holder must not go on with what others have taken over."""
    with chance.choice(fleet.nodes).paused():
        time.sleep(chance.uniform(0, 8))


def crash_the_database(fleet: Fleet, chance: random.Random) -> None:
    fleet.postgres.stop(is_crash=True)
    time.sleep(chance.uniform(0, 3))
    fleet.postgres.start()


def kill_the_object_store(fleet: Fleet, chance: random.Random) -> None:
    fleet.objects.kill()
    time.sleep(chance.uniform(0, 3))
    fleet.objects.start()


def pause_the_database(fleet: Fleet, chance: random.Random) -> None:
    fleet.postgres.pause()
    time.sleep(chance.uniform(0, 3))
    fleet.postgres.resume()


FAULTS: list[Callable[[Fleet, random.Random], None]] = [
    kill_a_node,
    kill_a_node,
    pause_a_node,
    crash_the_database,
    kill_the_object_store,
    pause_the_database,
]


def is_whole(client: httpx2.Client) -> bool:
    """True once all rows can be read."""
    path = "/api/v1/admin/orgs/acme/audit"
    return all(
        client.get(path, params={"limit": 1000, "order": order}).status_code == 200
        for order in ("asc", "desc")
    )


def exported_packages(client: httpx2.Client) -> Counter[str]:
    """The packages of an export as CSV, which must be whole."""
    answer = client.get("/api/v1/admin/orgs/acme/audit/export", params={"format": "csv", "raw": 1})
    assert answer.status_code == 200, answer.text
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == int(answer.headers["x-row-count"])
    return Counter(row["packageName"] for row in rows if row["packageName"])


def published_packages(fleet: Fleet) -> Counter[str]:
    """The packages in the open table, once the rest of the rows is sealed and published."""
    # Nodes go on merging, and hold the lease for it.
    fleet.run("audit", "seal", "--wait", "120")
    fleet.run("lake", "publish", "--format", "iceberg", "--wait", "120")
    (table,) = json.loads(fleet.run("lake", "status", "--json"))["tables"]
    assert table["lag_rows"] == 0
    properties = {
        "s3.endpoint": fleet.objects.endpoint,
        "s3.access-key-id": fleet.objects.environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": fleet.objects.environment["AWS_SECRET_ACCESS_KEY"],
        "s3.region": fleet.objects.environment["AWS_REGION"],
    }
    rows = StaticTable.from_metadata(table["version"], properties).scan().to_arrow()
    return Counter(name for name in rows["package_name"].to_pylist() if name)


def assert_received_in_order(rows: list[dict[str, Any]]) -> None:
    """What has the later number was received later, whichever node received it and by its clock."""
    received = [row["received_at"] for row in sorted(rows, key=lambda row: row["id"])]
    assert received == sorted(received)
    assert received[-1] <= format_us(utc_now() + timedelta(seconds=1))


def test_every_acknowledged_row_is_there_once_whatever_dies(fleet: Fleet) -> None:
    """Nodes, the database and the object store are killed and paused while four clients write."""
    chance = random.Random(20261123)
    writers = [Writer(f"writer-{number}", fleet.url) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    ends_at = time.monotonic() + SECONDS
    faults: Counter[str] = Counter()
    while time.monotonic() < ends_at:
        time.sleep(chance.uniform(0.2, 2))
        fault = chance.choice(FAULTS)
        fault(fleet, chance)
        faults[fault.__name__] += 1
    with fleet_client(fleet.url) as client:
        eventually(lambda: is_whole(client), "it recovers by itself", RECOVERY_MAX_S, 0.2)
    for writer in writers:
        writer.stop()

    acknowledged = Counter(name for writer in writers for name in writer.rows)
    patterns = {pattern for writer in writers for pattern in writer.bindings}
    print(faults, sum((writer.answers for writer in writers), Counter()))  # noqa: T201 - with -s
    assert len(acknowledged) > WRITERS * 20
    for node in fleet.nodes:
        with fleet_client(f"http://127.0.0.1:{node.port}") as client:
            rows = all_entries(client, limit="1000")
            stored = Counter(row["packageName"] for row in rows if row["packageName"])
            assert stored == acknowledged
            assert exported_packages(client) == acknowledged
            assert {one["subPattern"] for one in all_bindings(client)} == patterns
            assert_received_in_order(rows)
            created = [row for row in rows if row["event"] == "oidc_binding_created"]
            assert len(created) == len(patterns)
    assert fleet.nodes[0].home.run("audit", "check").code == 0
    assert published_packages(fleet) == acknowledged
