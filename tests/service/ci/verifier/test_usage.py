"""When a binding was last used and how often: counted without a write on the request's path."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import event, select
from structlog.testing import capture_logs

from service.app import background_jobs
from service.app.background_jobs import write_behind
from service.ci.verifier.seen_claims import OTHERS, VALUES_MAX
from service.ci.verifier.usage import PENDING_USES_MAX, BindingUse
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.tables import Binding, Organisation
from tests.conftest import START, SettableClock, World, running_world, settings_over
from tests.crashes import PowerCut, at, power_cut
from tests.databases import SHORT_WAIT_S
from tests.polling import HANG_S, until
from tests.service.trust.rejected.notes import another_store, locked

LATER = START + timedelta(seconds=5)


@pytest.fixture
def settings(tmp_path) -> Settings:
    """A database that is not waited for long."""
    return msgspec.structs.replace(settings_over(tmp_path), database_wait_s=SHORT_WAIT_S)


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what flushes here is the test."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


@pytest.fixture
def use(world) -> BindingUse:
    return world.services.binding_use


@pytest.fixture
async def binding_id(world) -> str:
    return await world.bind()


async def used(world: World) -> tuple[int, str | None]:
    """Of the one binding, what the list says: how often, and when last."""
    (binding,) = await world.bindings()
    return binding["useCount"], binding["lastUsedAt"]


async def test_uses_are_on_the_list_once_they_are_flushed(world, use, binding_id):
    """Requests must not wait for a write."""
    use.record(binding_id, START)
    use.record(binding_id, LATER)
    assert await used(world) == (0, None)

    await use.flush()

    assert await used(world) == (2, "2026-03-04T12:00:05.123Z")


async def seen(world: World) -> tuple[object, object]:
    async with world.services.store.read() as session:
        found = await session.execute(select(Binding.seen_since, Binding.seen_claims))
        return tuple(found.one())


async def test_what_tokens_had_is_kept_with_the_day_of_the_last(world, use, binding_id):
    use.record(binding_id, START, {"event_name": "push", "ref": "a"})
    use.record(binding_id, START, {"event_name": "push", "ref": "b"})
    await use.flush()
    tomorrow = START + timedelta(days=1)
    use.record(binding_id, tomorrow, {"event_name": "push", "ref": "b"})
    await use.flush()

    assert await seen(world) == (
        START,
        {
            "event_name": {"push": "2026-03-05"},
            "ref": {"a": "2026-03-04", "b": "2026-03-05"},
        },
    )


async def test_what_is_known_of_a_day_is_not_written_again(world, use, binding_id):
    written: list[str] = []
    use.record(binding_id, START, {"ref": "a"})
    await use.flush()
    writer = world.services.store._engines.writer.sync_engine
    event.listen(writer, "before_cursor_execute", lambda *call: written.append(call[2]))
    use.record(binding_id, LATER, {"ref": "a"})

    await use.flush()

    assert await used(world) == (2, "2026-03-04T12:00:05.123Z")
    assert not [statement for statement in written if "seen_claims" in statement]


async def test_a_claim_with_ever_new_values_takes_no_more_memory_or_writes(world, use, binding_id):
    """Such as the refs of pull requests, which are thousands a day."""
    for number in range(3 * VALUES_MAX):
        use.record(binding_id, START, {"ref": f"refs/pull/{number}"})
        await use.flush()
    _, claims = await seen(world)
    _, written = use._written[binding_id]

    assert len(claims["ref"]) == VALUES_MAX + 1
    assert claims["ref"][OTHERS] == "2026-03-04"
    assert len(written["ref"]) == VALUES_MAX + 1


async def test_a_use_is_counted_once(world, use, binding_id):
    use.record(binding_id, START)
    await use.flush()
    await use.flush()

    assert (await used(world))[0] == 1


async def test_the_last_use_is_the_latest_whatever_order_they_come_in(
    world, settings, use, binding_id
):
    """Another worker may write later what it saw earlier."""
    use.record(binding_id, LATER)
    use.record(binding_id, START)
    await use.flush()
    async with another_store(settings) as store:
        slower = BindingUse(store, Metrics())
        slower.record(binding_id, START)
        await slower.flush()

    assert await used(world) == (3, "2026-03-04T12:00:05.123Z")


async def test_without_uses_the_database_is_left_alone(settings, use, binding_id):
    """Otherwise the write lock would be taken every two seconds."""
    with locked(settings):
        await use.flush()
        use.record(binding_id, START)
        with pytest.raises(StoreUnavailable):
            await use.flush()


async def test_what_could_not_be_written_is_written_with_what_came_meanwhile(
    world, settings, use, binding_id
):
    use.record(binding_id, LATER)
    with locked(settings):
        with pytest.raises(StoreUnavailable):
            await use.flush()
        use.record(binding_id, START)
        with pytest.raises(StoreUnavailable):
            await use.flush()

    await use.flush()

    assert await used(world) == (2, "2026-03-04T12:00:05.123Z")


async def test_a_flush_that_is_cancelled_loses_nothing(world, use, binding_id):
    use.record(binding_id, START)
    async with world.services.store.write():
        flushing = asyncio.create_task(use.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing

    await use.flush()

    assert (await used(world))[0] == 1


@pytest.mark.parametrize("statement", ["UPDATE bindings", "COMMIT"])
async def test_a_crash_loses_what_was_not_yet_written_and_nothing_else(
    world, use, binding_id, statement
):
    use.record(binding_id, START)
    await use.flush()
    use.record(binding_id, LATER)
    with power_cut(world.services.store, at(statement)), pytest.raises(PowerCut):
        await use.flush()

    assert await used(world) == (1, "2026-03-04T12:00:00.123Z")


async def test_workers_that_flush_at_once_count_together(world, settings, binding_id):
    """The database adds; no worker writes back a sum it has read."""
    async with another_store(settings) as one, another_store(settings) as two:
        workers = [BindingUse(store, Metrics()) for store in (one, two)]
        for _ in range(10):
            for worker in workers:
                worker.record(binding_id, START)
            await asyncio.gather(*(worker.flush() for worker in workers))

    assert (await used(world))[0] == 20


async def test_a_use_just_before_the_revoke_still_counts(world, use, binding_id):
    """An investigation of the incident needs it."""
    use.record(binding_id, START)
    await world.revoke(binding_id)
    await use.flush()

    assert (await used(world))[0] == 1


async def test_counting_is_no_change_of_trust(world, use, binding_id):
    """Otherwise every worker would read the bindings again every two seconds."""

    async def revision() -> int:
        async with world.services.store.read() as session:
            return await session.scalar(
                select(Organisation.trust_revision).where(Organisation.slug == "acme")
            )

    before = await revision()
    use.record(binding_id, START)
    await use.flush()

    assert await revision() == before


async def test_what_waits_to_be_written_is_bounded(world, use, binding_id):
    """A database that stays away must not exhaust the memory."""
    use.record(binding_id, START)
    for number in range(PENDING_USES_MAX):
        use.record(f"obind_{number}", START)
    use.record(binding_id, START)

    exposed = world.services.metrics.exposition().decode()
    await use.flush()

    assert "countersign_binding_uses_dropped_total 1.0" in exposed.splitlines()
    assert (await used(world))[0] == 2


async def test_the_bookkeeping_writes_what_is_noted_and_survives_a_failure(
    world, settings, use, binding_id, monkeypatch
):
    monkeypatch.setattr(background_jobs, "WRITE_BEHIND_INTERVAL_S", 0.05)
    stop = asyncio.Event()
    use.record(binding_id, START)
    with capture_logs() as logs, locked(settings):
        rounds = asyncio.create_task(write_behind(world.services).run(stop))
        async with asyncio.timeout(HANG_S):
            await until(lambda: "maintenance_failed" in {line["event"] for line in logs})
    async with asyncio.timeout(HANG_S):
        while (await used(world))[0] == 0:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)
    stop.set()
    await rounds

    assert (await used(world))[0] == 1
    failures = 'countersign_maintenance_failures_total{task="count_uses"} '
    exposed = world.services.metrics.exposition().decode()
    (line,) = [line for line in exposed.splitlines() if line.startswith(failures)]
    assert float(line.removeprefix(failures)) >= 1
