"""Organisations take turns at the threads for queries: no flood of one delays another's page."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs

from analytics.query.reader import Reader
from service.audit.lake import Lake
from service.audit.lake_queries import query_bounds
from service.audit.refusals import QueryTooSlow
from service.core.errors import TOO_MANY_WAITING_OF_CALLER, WAITED_TOO_LONG, TooManyWaiting
from service.core.fair_queue import Length
from service.core.settings import Settings
from service.core.threads import BACKGROUND_NICENESS
from service.orgs.api_keys import issue_api_key
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, SettableClock, refused, running_world
from tests.polling import HANG_S, until
from tests.service.audit.conftest import AuditWorld

THREADS = 2


@dataclass
class Gate:
    """Queries that run until it is opened."""

    lake: Lake
    begun: list[str] = field(default_factory=list)
    may_end: threading.Event = field(default_factory=threading.Event)

    def start(self, tenant_id: str, length: Length) -> asyncio.Task[int]:
        """A query of `tenant_id`; the niceness of its thread."""

        def wait(_: Reader) -> int:
            self.begun.append(tenant_id)
            self.may_end.wait(HANG_S)
            return niceness()

        return asyncio.create_task(self.lake.queries.run(wait, tenant_id=tenant_id, length=length))

    async def until_begun(self, count: int) -> None:
        """Return once so many run, and the event loop has had time to begin another."""
        await until(lambda: len(self.begun) >= count)
        for _ in range(10):
            await asyncio.sleep(0)


def threads() -> set[int]:
    """Of this process, by their ids."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def niceness(_: object = None) -> int:
    """Of this thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.fixture
async def lake(settings: Settings) -> AsyncIterator[Lake]:
    opened = Lake(structs.replace(settings, engine_threads=THREADS, queries_waiting_per_org_max=4))
    yield opened
    opened.close()


@pytest.fixture
async def gate(lake: Lake) -> AsyncIterator[Gate]:
    closed = Gate(lake)
    yield closed
    closed.may_end.set()


async def test_groupings_of_one_organisation_leave_threads_to_others(lake, gate):
    groupings = [gate.start("a", Length.LONG) for _ in range(3)]
    await gate.until_begun(1)
    assert gate.begun == ["a"]

    groupings.append(gate.start("b", Length.LONG))
    await gate.until_begun(2)
    page = await lake.queries.run(lambda _: "page", tenant_id="b")

    assert (page, gate.begun) == ("page", ["a", "b"])
    gate.may_end.set()
    await asyncio.gather(*groupings)


async def test_pages_of_one_organisation_leave_a_thread_to_others(lake, gate):
    pages = [gate.start("a", Length.SHORT) for _ in range(5)]
    await gate.until_begun(THREADS + 1)

    page = await lake.queries.run(lambda _: "page", tenant_id="b")

    assert (page, gate.begun) == ("page", ["a"] * (THREADS + 1))
    gate.may_end.set()
    await asyncio.gather(*pages)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has niceness by thread")
async def test_what_is_long_or_not_the_first_has_low_priority(gate):
    pages = [gate.start("a", Length.SHORT) for _ in range(2)]
    grouping = gate.start("b", Length.LONG)
    await gate.until_begun(3)
    gate.may_end.set()

    low = max(niceness(), BACKGROUND_NICENESS)
    assert sorted(await asyncio.gather(*pages)) == [niceness(), low]
    assert await grouping == low


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has niceness by thread")
async def test_threads_of_duckdb_have_low_priority(settings):
    before = threads()
    lake = Lake(structs.replace(settings, engine_threads=4))
    await lake.queries.warm_up()

    new = threads() - before

    assert len(new) >= 3
    low = max(niceness(), BACKGROUND_NICENESS)
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in new} == {low}
    lake.close()


async def test_a_query_that_has_ended_gives_its_turn_back_also_if_its_caller_is_gone(lake, gate):
    """Until then it takes processor time."""
    first = gate.start("a", Length.LONG)
    await gate.until_begun(1)
    second = gate.start("a", Length.LONG)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await gate.until_begun(1)
    assert gate.begun == ["a"]

    gate.may_end.set()

    await second
    assert gate.begun == ["a", "a"]


async def test_the_time_of_a_query_begins_with_its_turn(settings):
    """One that waited longer than a query may take is answered."""
    lake = Lake(structs.replace(settings, query_max_s=0.2))
    gate = Gate(lake)
    slow = gate.start("a", Length.LONG)
    waiting = gate.start("a", Length.LONG)
    with pytest.raises(QueryTooSlow):
        await slow

    gate.may_end.set()

    assert await waiting >= 0
    lake.close()


async def test_a_query_does_not_wait_longer_than_it_may(settings):
    lake = Lake(structs.replace(settings, query_wait_max_s=0.05))
    gate = Gate(lake)
    grouping = gate.start("a", Length.LONG)
    await gate.until_begun(1)

    with pytest.raises(WAITED_TOO_LONG):
        await gate.start("a", Length.LONG)

    gate.may_end.set()
    await grouping
    assert gate.begun == ["a"]
    lake.close()


async def test_an_organisation_with_too_many_waiting_gets_a_429(settings, clock):
    changed = structs.replace(settings, queries_waiting_per_org_max=1)
    async with running_world(changed, clock, has_sealer=False) as world:
        audit, gate = AuditWorld(world), Gate(world.services.lake)
        held = [gate.start(world.acme.id, Length.LONG) for _ in range(2)]
        await gate.until_begun(1)

        response = await audit.get()

        assert await refused(response) == (429, TooManyWaiting.text)
        assert int(response.headers["retry-after"]) > 0
        assert (await audit.get(slug="other")).status_code == 200
        page = await world.client.get("/admin/ui/orgs/acme/audit", headers=world.admin)
        assert page.status_code == 429
        assert TooManyWaiting.text in (await page.get_data(as_text=True)).lower()
        gate.may_end.set()
        await asyncio.gather(*held)


async def test_a_key_has_a_limit_of_its_own(settings: Settings, clock: SettableClock, monkeypatch):
    changed = structs.replace(settings, queries_per_caller_max=1)
    async with running_world(changed, clock, has_sealer=False) as world:
        gate, page = Gate(world.services.lake), Reader.page
        keys = []
        async with world.services.store.write() as work:
            for name in ("one", "two"):
                _, secret = await issue_api_key(
                    work, world.acme, name, None, BY_OPERATOR, scopes=["audit:r"]
                )
                keys.append({"x-service-api-key": secret})

        def held(self: Reader, *arguments: object) -> object:
            gate.begun.append("page")
            gate.may_end.wait(HANG_S)
            return page(self, *arguments)

        monkeypatch.setattr(Reader, "page", held)
        path = "/api/v1/admin/orgs/acme/audit"
        first = asyncio.create_task(world.client.get(path, headers=keys[0]))
        await gate.until_begun(1)
        assert await refused(await world.client.get(path, headers=keys[0])) == (
            429,
            TOO_MANY_WAITING_OF_CALLER.text,
        )

        second = asyncio.create_task(world.client.get(path, headers=keys[1]))
        await gate.until_begun(2)
        gate.may_end.set()
        assert [(await each).status_code for each in (first, second)] == [200, 200]


async def test_time_used_is_counted_by_organisation(audit):
    await audit.accept([sample_row(START)])
    assert (await audit.get()).status_code == 200
    assert await (await audit.export(format="csv")).get_data()

    exposed = audit.services.metrics.exposition().decode()

    acme = audit.world.acme.id
    for work in ("short query", "export"):
        assert f'countersign_tenant_work_seconds_total{{tenant="{acme}",work="{work}"}}' in exposed
        assert f'countersign_turn_wait_seconds_count{{work="{work}"}}' in exposed


async def test_values_are_compared_in_their_organisations_turn(audit):
    """That thread takes in the rows of all organisations."""
    await audit.accept([sample_row(START, package_name="left-pad")])
    audit.services.lake._row_thread.shutdown()

    response = await audit.get("/unknown-values", package="left-pda")

    (unknown,) = (await response.get_json())["unknown"]
    assert unknown["nearest"] == "left-pad"


async def test_look_ups_of_values_may_wait_for_their_turns(audit, monkeypatch):
    """Only their own time counts: others' queries must not make them fail."""
    await audit.accept([sample_row(START, package_name="left-pad")])
    await audit.get("/unknown-values", package="react")  # which opens what it asks
    monkeypatch.setattr("service.audit.unknown_values.ALL_MAX_S", 1.0)
    gate = Gate(audit.services.lake)
    per_tenant = query_bounds(audit.services.settings).per_tenant
    held = [gate.start(audit.world.acme.id, Length.SHORT) for _ in range(per_tenant)]
    await gate.until_begun(per_tenant)
    answering = asyncio.create_task(audit.get("/unknown-values", package="left-pda"))
    await asyncio.sleep(1.5)

    gate.may_end.set()

    assert (await answering).status_code == 200
    await asyncio.gather(*held)
