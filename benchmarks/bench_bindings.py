"""Claim: a create among 10,000 bindings is as fast as among 10; the list of 10,000 responds.

The peer of the create is the same create among 10 bindings. The peer of the list is the minimum
that any server must do: fetch the same rows with bare sqlite3 and encode them with json.
"""

import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from benchmarks.results import record
from benchmarks.server import running_server
from service.access.callers import cli_caller
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.ids import new_id
from service.core.settings import Settings
from service.orgs.organisations import create_org
from service.store.tables import Binding, Origin
from service.trust.bindings.rules import Draft, slot_key

ISSUER = "https://token.actions.githubusercontent.com"
FEW, MANY = 10, 10_000
ROUNDS = 100
LISTS = 15
CREATED = ROUNDS + 1
"""Bindings that are created in each case; with the last of them there are as many as may be."""


async def fill(data_dir: Path, count: int) -> None:
    """An organisation `acme` with `count` active bindings."""
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with services.store.write() as work:
        org = await create_org(work, "acme", "org", cli_caller("org_platform").audit_context)
        work.session.add_all(
            Binding(
                id=new_id("obind"),
                tenant_id=org.id,
                slot=slot_key(_draft(number), org.id, "global"),
                issuer=ISSUER,
                sub_pattern=_draft(number).sub_pattern,
                repository_id=str(number + 1),
                event_names=["push"],
                origin="org_admin",
                added_by="system:admin-token",
                added_at=start + timedelta(seconds=number),
            )
            for number in range(count)
        )
    await services.close()


def _draft(number: int) -> Draft:
    return Draft(
        issuer=ISSUER,
        sub_pattern=f"repo:acme/service-{number}:ref:refs/heads/main",
        repository_id=str(number + 1),
        event_names=("push",),
        origin=Origin.ORG_ADMIN,
        project_id=None,
        team_id=None,
    )


def create(client: httpx2.Client, number: int) -> None:
    """One create of a new triple."""
    response = client.post(
        "/api/v1/admin/orgs/acme/oidc-bindings",
        json={
            "issuer": ISSUER,
            "sub_pattern": f"repo:acme/new-{number}:ref:refs/heads/main",
            "repository_id": str(10**9 + number),
            "origin": "org_admin",
        },
    )
    assert response.status_code == 201, response.text


def bare_list(data_dir: Path) -> None:
    """The same rows with only sqlite3 and json."""
    connection = sqlite3.connect(data_dir / "countersign.db")
    rows = connection.execute("SELECT * FROM bindings ORDER BY added_at DESC, id").fetchall()
    connection.close()
    json.dumps(rows)


def median_ms(action: Callable[[], object], rounds: int) -> float:
    """The median duration of `action`, in milliseconds."""
    durations = []
    for _ in range(rounds):
        began_at = time.perf_counter()
        action()
        durations.append((time.perf_counter() - began_at) * 1000)
    return statistics.median(durations)


def measure_creates(client: httpx2.Client) -> float:
    """The median duration of a create, in milliseconds."""
    numbers = iter(range(CREATED))
    create(client, next(numbers))
    return median_ms(lambda: create(client, next(numbers)), ROUNDS)


def measure_lists(client: httpx2.Client, data_dir: Path, count: int) -> tuple[float, float]:
    """The median durations of a list of `count` bindings and of its peer, in milliseconds."""
    path = "/api/v1/admin/orgs/acme/oidc-bindings"
    body = client.get(path).json()
    assert body["count"] == len(body["bindings"]) == count
    return (
        median_ms(lambda: client.get(path), LISTS),
        median_ms(lambda: bare_list(data_dir), LISTS),
    )


def main() -> None:
    """Measure, and print figures beside estimates."""
    creates: dict[int, float] = {}
    for count, filled in ((FEW, FEW), (MANY, MANY - CREATED)):
        with tempfile.TemporaryDirectory() as folder:
            data_dir = Path(folder)
            asyncio.run(fill(data_dir, filled))
            with running_server(data_dir) as client:
                creates[count] = measure_creates(client)
                if count == MANY:
                    listed, bare = measure_lists(client, data_dir, MANY)
    print(f"create among 10      {creates[FEW]:7.2f} ms   (estimated 6)")
    print(f"create among 10,000  {creates[MANY]:7.2f} ms   (estimated 6)")
    print(f"  ratio              {creates[MANY] / creates[FEW]:7.2f}      (estimated 1.0)")
    print(f"list of 10,000       {listed:7.1f} ms   (estimated 250)")
    print(f"  bare sqlite3+json  {bare:7.1f} ms   (estimated 60)")
    print(f"  ratio              {listed / bare:7.1f}      (estimated 4)")
    record(
        "bindings",
        {
            **{f"create among {count:,}, ms": ms for count, ms in creates.items()},
            "create among many to among few, ratio": creates[MANY] / creates[FEW],
            f"list of {MANY:,}, ms": listed,
            "the same by bare sqlite3 and json, ms": bare,
            "list to bare, ratio": listed / bare,
        },
        estimated={
            "create among 10, ms": 6,
            "create among 10,000, ms": 6,
            "create among many to among few, ratio": 1,
            "list of 10,000, ms": 250,
            "the same by bare sqlite3 and json, ms": 60,
            "list to bare, ratio": 4,
        },
    )


if __name__ == "__main__":
    main()
