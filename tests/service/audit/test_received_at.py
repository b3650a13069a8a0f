"""`received_at` has the order of the ids, whatever the clock does; `created_at` is the clock's."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from analytics.model.instants import format_us, parse_instant
from analytics.storage.journal_batches import encode_days
from service.orgs.teams import create_team
from service.store.organisations import get_org
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START
from tests.service.audit.conftest import AuditWorld, start_worker
from tests.service.audit.meanwhile import by_another_worker
from tests.service.audit.test_import import named, take, take_with

AHEAD = timedelta(days=400)
EVENT = "install_allowed"


async def received(audit: AuditWorld) -> list[datetime]:
    """When acme's rows were received, in the order of their ids; all of them are shown."""
    async with audit.services.store.write() as work:
        (await get_org(work.session, "acme")).tier = "enterprise"
    rows = sorted(await audit.pages(), key=lambda row: str(row["id"]))
    return [parse_instant(row["received_at"]) for row in rows]


async def by_request(audit: AuditWorld) -> None:
    """A row that a key sends: several of them share a transaction."""
    body = json.dumps([{"event": EVENT, "packageName": "p"}])
    response = await audit.world.client.post(
        "/api/v1/admin/orgs/acme/audit/events",
        headers=audit.world.admin | {"content-type": "application/json"},
        data=body,
    )
    assert (await response.get_json())["accepted"] == 1


async def by_change(audit: AuditWorld) -> None:
    """A row of a change, in the transaction that it records."""
    async with audit.services.store.write() as work:
        acme = await get_org(work.session, "acme")
        await create_team(work, acme, format_us(audit.clock()), BY_OPERATOR)


async def by_store(audit: AuditWorld) -> None:
    """A row whose id is needed before the commit, as those of the install proxy."""
    (batch,) = encode_days([sample_row(audit.clock())])
    await audit.services.store.write_at_once(
        lambda work: (
            work.journal.store(work.transaction, audit.world.acme.id, batch, work.now).first_seq
        )
    )


async def by_import(audit: AuditWorld) -> None:
    """A row of a file."""
    await take(audit, json.dumps({"created_at": format_us(audit.clock()), "event": EVENT}).encode())


@pytest.mark.parametrize("add", [by_request, by_change, by_store, by_import])
@pytest.mark.parametrize("back", [timedelta(microseconds=1), timedelta(hours=47), AHEAD])
async def test_it_never_falls_when_the_clock_does(audit, add, back):
    await add(audit)
    latest = audit.clock.now
    audit.clock.now -= back
    await add(audit)
    rows = sorted(await received(audit))
    assert rows == await received(audit)
    assert rows[-1] == latest
    newest = max(await audit.pages(), key=lambda row: str(row["id"]))
    if add is not by_import:
        assert parse_instant(newest["created_at"]) == audit.clock.now

    audit.clock.now = latest + timedelta(microseconds=1)
    await add(audit)
    assert (await received(audit))[-1] == audit.clock.now


async def test_it_never_falls_across_a_restart(audit):
    """It is in the database, with the seq: no process remembers it."""
    audit.clock.now += AHEAD
    await by_change(audit)
    audit.clock.now -= AHEAD
    another = start_worker(audit.services.settings, audit.clock)
    async with another.store.write() as work:
        await create_team(work, await get_org(work.session, "acme"), "later", BY_OPERATOR)
    await another.close()

    assert (await received(audit))[-2:] == [START + AHEAD] * 2


async def test_rows_of_a_file_are_received_when_they_get_their_ids(audit, in_pieces):
    """They are read before that, while others are accepted with smaller ids."""

    async def accept(worker: Any) -> None:
        async with worker.store.write() as work:
            await create_team(
                work, await get_org(work.session, "acme"), format_us(work.now), BY_OPERATOR
            )

    def later() -> None:
        audit.clock.advance(minutes=1)
        by_another_worker(audit, accept)()

    assert (await take_with(audit, named(5), later)).rows == 5
    ended = audit.clock.now
    rows = await received(audit)
    assert rows == sorted(rows)
    assert rows[-6:] == [ended] * 6
    found = await _each_way(audit)
    assert set(found) == {format_us(ended)}

    audit.clock.advance(days=2)
    assert await audit.services.compactor.compact_due(everything=True)
    assert await _each_way(audit) == found


async def _each_way(audit: AuditWorld) -> list[str]:
    """When the rows of the file were received: by page, by filter, in both orders, exported."""
    queries: list[dict[str, Any]] = [
        {"event": EVENT},
        {"event": EVENT, "order": "asc"},
        {"package": ["p0", "p1", "p2", "p3", "p4"], "limit": 2},
        {"package": "p*"},
    ]
    shown = [row["received_at"] for query in queries for row in await audit.pages(**query)]
    response = await audit.export(format="ndjson", event=EVENT)
    lines = (await response.get_data(as_text=True)).splitlines()
    exported = [json.loads(line)["received_at"] for line in lines]
    assert (len(shown), len(exported)) == (20, 5)
    return shown + exported


@pytest.mark.parametrize("work", ["seal", "compact"])
async def test_a_clock_that_was_corrected_does_not_stop_maintenance(audit, work):
    """What was received in its future would otherwise wait until then."""
    audit.clock.now += AHEAD
    await by_change(audit)
    audit.clock.now -= AHEAD
    services = audit.services
    run: dict[str, Callable[[], Any]] = {
        "seal": services.sealer.seal_due,
        "compact": partial(services.compactor.compact_due),
    }
    await (by_import if work == "compact" else by_change)(audit)
    assert await run[work]() == []
    audit.clock.advance(days=1)

    assert await run[work]()
