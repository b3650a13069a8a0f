"""A service on PostgreSQL as its clients see it: during an outage, and as two nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from quart.typing import TestClientProtocol as Client

from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION, Services
from service.core.clock import utc_now
from service.core.settings import Settings
from tests.budgets import only_full
from tests.conftest import SettableClock, World, binding_body, bindings_path, running_world
from tests.polling import HANG_S
from tests.postgres import EMPTY, PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(settings: Settings, own_postgres: PostgresServer) -> Settings:
    """Over a new database of a server that can be paused."""
    url = own_postgres.url(own_postgres.create_database(EMPTY))
    return msgspec.structs.replace(settings, database_url=url, database_wait_s=2.0)


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    async with running_world(settings, clock, has_sealer=False) as people:
        yield people


@only_full
async def test_readiness_is_answered_within_two_seconds(
    settings: Settings, own_postgres: PostgresServer, clock: SettableClock
):
    """Although requests may wait longer; and it is ready again with the first question."""
    patient = msgspec.structs.replace(settings, database_wait_s=2 * HANG_S)
    async with running_world(patient, clock, has_sealer=False) as world:
        assert (await world.client.get("/readyz")).status_code == 200
        own_postgres.pause()
        async with asyncio.timeout(HANG_S):
            answer = await world.client.get("/readyz")
        own_postgres.resume()

        assert answer.status_code == 503
        assert (await world.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("way", ["paused", "stopped"])
async def test_requests_during_an_outage_are_told_when_to_try_again(
    world: World, own_postgres: PostgresServer, way: str
):
    assert await world.bindings() == []
    if way == "paused":
        own_postgres.pause()
    else:
        await asyncio.to_thread(own_postgres.stop)
    async with asyncio.timeout(HANG_S):
        answers = await asyncio.gather(
            world.client.get(bindings_path(), headers=world.admin), world.create()
        )
    if way == "paused":
        own_postgres.resume()
    else:
        await asyncio.to_thread(own_postgres.start)

    assert [answer.status_code for answer in answers] == [503, 503]
    assert [answer.headers["retry-after"] for answer in answers] == ["1", "1"]
    assert await world.bindings() == []
    assert (await world.create()).status_code == 201


async def test_what_one_node_has_confirmed_counts_on_the_other(
    settings: Settings, clock: SettableClock, tmp_path
):
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_world(settings, clock, has_sealer=False))
        ready = first.services.settings
        beside = msgspec.structs.replace(ready, data_dir=tmp_path / "second")
        for folder in (beside.data_dir, beside.audit_dir, beside.temp_dir):
            folder.mkdir()
        app = create_app(beside, utc_now, jobs=seal_jobs)
        services: Services = app.extensions[EXTENSION]
        stack.push_async_callback(services.close)
        nodes = [first.client, app.test_client()]
        for n in range(20):
            here, there = nodes[n % 2], nodes[(n + 1) % 2]
            body = binding_body(repository_id=str(1000 + n))
            made = await here.post(bindings_path(), headers=first.admin, json=body)
            twin = await there.post(bindings_path(), headers=first.admin, json=body)
            binding_id = (await made.get_json())["id"]
            listed = await active(there, first)
            gone = await there.delete(
                bindings_path(binding_id=binding_id), headers=first.admin, json={"reason": "x"}
            )

            assert (made.status_code, twin.status_code, gone.status_code) == (201, 409, 200)
            assert listed == {binding_id}
            assert await active(here, first) == set()


async def active(node: Client, world: World) -> set[str]:
    answer = await node.get(bindings_path(), headers=world.admin, query_string={"active": "true"})
    return {line["id"] for line in (await answer.get_json())["bindings"]}
