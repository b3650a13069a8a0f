"""The ledger: whatever dies, each acknowledged change is there, and once, on every node."""

import csv
import io
import json
import os
import random
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from pyiceberg.table import StaticTable

from analytics.model.instants import format_us
from service.core.clock import utc_now
from tests.budgets import only_full
from tests.fleet.faults import ALL, GOAL_S, Faults
from tests.fleet.fleet import Fleet
from tests.fleet.ledger import SILENT, Reader, Writer, fleet_client
from tests.processes.homes import all_bindings, all_entries

SECONDS = float(os.environ.get("LEDGER_S", "60"))
"""How long parts of the fleet die; LEDGER_S=1800 is the long run."""

pytestmark = [only_full, pytest.mark.slow, pytest.mark.timeout(SECONDS + 900)]

WRITERS = 4
SEED = int(os.environ.get("LEDGER_SEED", "20261123"))


def hang_s(chance: random.Random) -> float:
    """How long a server hangs: mostly for a moment, and in long runs also for minutes."""
    longer = [5.0, 5.0] + [30.0] * (SECONDS >= 240) + [120.0] * (SECONDS >= 1_200)
    return chance.choice([chance.uniform(0, 3)] * 5 + longer)


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
    """How long each recovery took is printed with `pytest -s`."""
    faults = Faults(fleet, random.Random(SEED), hang_s)
    writers = [Writer(f"writer-{number}", fleet.url) for number in range(WRITERS)]
    clients = [*writers, *(Reader(f"reader-{number}", fleet.url) for number in range(2))]
    for client in clients:
        client.start()
    ends_at = time.monotonic() + SECONDS
    try:
        while time.monotonic() < ends_at:
            time.sleep(faults.chance.uniform(0.2, 2))
            fault = faults.chance.choice(ALL)
            took_s = faults.run(fault)
            if took_s > GOAL_S:
                print(f"{fault.__name__}: {took_s:.1f} s")  # noqa: T201 - with -s
        for client in clients:
            client.stop()
    finally:
        print(faults.summary(clients))  # noqa: T201 - with -s

    acknowledged = Counter(name for writer in [*writers, *faults.probes] for name in writer.rows)
    patterns = {pattern for writer in writers for pattern in writer.bindings}
    assert len(acknowledged) > WRITERS * 20
    for node in fleet.nodes:
        with fleet_client(node.url) as client:
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
    assert set(faults.exit_codes) <= {0}
    assert faults.answers(clients)[SILENT] == 0
