"""A query whose client is gone ends, and its thread is free for the next."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from analytics.query.reader import Reader
from service.audit.refusals import QueryTooSlow
from service.core.settings import Settings
from tests.conftest import SettableClock, refused, running_world
from tests.polling import HANG_S
from tests.service.audit.conftest import AuditWorld

ENDLESS = "SELECT count(*) FROM range(1_000_000_000) a, range(1_000_000_000) b WHERE a < b"
# A summary by day is kept, and asks nothing.
PATHS = pytest.mark.parametrize("path", ["", "/summary?bucket=hour", "/aud_0000000000000000001"])


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question keeps DuckDB busy forever, as one over too many rows would."""

    def ask(self: Reader, *_: object, **__: object) -> object:
        resources = self.resources
        return resources.engine.select(ENDLESS, {}, {}, resources.cancellation)

    for question in ("page", "row", "count_over_time"):
        monkeypatch.setattr(Reader, question, ask)


@pytest.fixture
async def impatient(settings: Settings, clock: SettableClock) -> AsyncIterator[AuditWorld]:
    """A service that gives up soon."""
    changed = structs.replace(settings, query_max_s=0.1)
    async with running_world(changed, clock, has_sealer=False) as world:
        yield AuditWorld(world)


def running(audit: AuditWorld) -> int:
    """How many queries DuckDB runs."""
    return len(audit.services.lake.queries._engine._cursors)


async def until_running(audit: AuditWorld, count: int) -> None:
    ends_at = time.monotonic() + HANG_S
    while running(audit) != count:
        assert time.monotonic() < ends_at, f"{running(audit)} queries run, not {count}"
        await asyncio.sleep(0.01)


@PATHS
async def test_a_query_over_its_time_is_a_503_that_says_so(impatient, path):
    """A shorter window would work."""
    assert await refused(await impatient.get(path)) == (503, QueryTooSlow.text)
    await until_running(impatient, 0)


@PATHS
async def test_a_query_ends_when_its_client_goes_away(audit, path):
    """Otherwise a few impatient reloads would keep every thread busy."""
    connection = audit.world.client.request(
        f"/api/v1/admin/orgs/acme/audit{path}", headers=audit.world.admin
    )
    async with connection:
        await connection.send_complete()
        await until_running(audit, 1)
        await connection.disconnect()
        await until_running(audit, 0)

    assert running(audit) == 0


async def test_more_slow_queries_than_threads_leave_the_service_usable(impatient):
    slow = [asyncio.create_task(impatient.get()) for _ in range(40)]
    answers = [(await answer).status_code for answer in slow]
    await until_running(impatient, 0)

    assert answers == [503] * 40
    assert (await impatient.world.client.get("/readyz")).status_code == 200
