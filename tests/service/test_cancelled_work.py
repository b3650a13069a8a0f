"""Clients leave at any moment; what they began is whole or not there, and no other waits."""

import asyncio
import random

import pytest
from msgspec import structs

from service.access.callers import cli_caller
from service.core.settings import Settings
from service.trust.bindings.changes import add_binding
from tests.conftest import SettableClock, World, binding_body, running_world
from tests.databases import IS_POSTGRESQL

SEED = 7
ROUNDS = 150


@pytest.mark.slow
async def test_work_cancelled_anywhere_leaves_no_half_change_and_no_lock(
    settings: Settings, clock: SettableClock
) -> None:
    """A client that goes away cancels its request wherever it stands, the commit included.

    The next writer must find the lock free: with so short a wait a lock that lingers in a
    forgotten connection is StoreUnavailable.
    """
    wait_s = 3.0 if IS_POSTGRESQL else 0.5  # it must suffice for a new connection
    impatient = structs.replace(settings, database_wait_s=wait_s)
    async with running_world(impatient, clock, has_sealer=False) as world:
        cancelled = await cancel_creates(world)
        bindings = {binding["id"] for binding in await world.bindings()}
        rows = [row["subject"] for row in await world.audit(event="oidc_binding_created")]

    assert cancelled > 0, f"seed {SEED} cancelled nothing"
    assert sorted(rows) == sorted(bindings), f"seed {SEED}"


async def cancel_creates(world: World) -> int:
    """Begin creates, and cancel each somewhere; how many were cancelled."""
    operator = cli_caller("org_platform")
    services = world.services
    moments = random.Random(SEED)

    async def create(number: int) -> None:
        async with services.store.write() as work:
            body = binding_body(sub_pattern=f"repo:acme/{number}", repository_id=number + 1)
            await add_binding(work, world.acme, body, operator, services.issuers)

    cancelled = 0
    for number in range(ROUNDS):
        task = asyncio.create_task(create(number))
        await asyncio.sleep(moments.random() * 0.006)
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        cancelled += isinstance(results[0], asyncio.CancelledError)
        async with services.store.write():
            pass
    return cancelled
