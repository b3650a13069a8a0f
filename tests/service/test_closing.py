"""What is closed at the end, whatever fails on the way."""

import asyncio

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from analytics.model.errors import StoreFault
from analytics.query.engine import Engine
from analytics.storage.segment_metadata import Segment
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION, build_services
from service.audit.compactor import Compactor
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.tables import Binding
from tests.conftest import SettableClock, running_world
from tests.other_programs import write_lock
from tests.polling import HANG_S
from tests.service.trust.rejected.notes import another_store


async def test_a_database_that_is_held_up_keeps_nothing_open(settings: Settings):
    """The last counts are lost, and said to be; everything is closed all the same."""
    impatient = await prepare(structs.replace(settings, database_wait_s=0.1))
    services = build_services(impatient, utc_now)
    services.binding_use.record("obind_1", utc_now())
    with write_lock(impatient.data_dir), capture_logs() as logs:
        await services.close()
    assert [line["event"] for line in logs] == ["last_flush_failed"]
    assert services.http.is_closed


async def test_what_memory_alone_knows_is_written_before_a_long_merge_has_ended(
    settings: Settings, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
):
    """The server waits only so long for the background, and then the process ends."""
    is_merging, may_end = asyncio.Event(), asyncio.Event()

    async def merge(compactor: Compactor, **options: object) -> list[Segment]:
        is_merging.set()
        await may_end.wait()
        return []

    monkeypatch.setattr(Compactor, "compact_due", merge)
    async with running_world(settings, clock, has_sealer=False) as world:
        binding = await (await world.create()).get_json()
    app = create_app(world.services.settings, clock)
    await app.startup()
    await is_merging.wait()
    app.extensions[EXTENSION].binding_use.record(binding["id"], clock())
    stopping = asyncio.create_task(app.shutdown())
    uses = 0
    async with another_store(settings) as store:
        while not uses:
            async with store.read() as session:
                uses = (await session.get_one(Binding, binding["id"])).use_count

    assert not stopping.done()
    may_end.set()
    await stopping


async def test_the_engine_is_open_before_the_first_query(
    settings: Settings, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
):
    """Opening it takes longer than most queries."""
    is_open = asyncio.Event()
    loop, opened = asyncio.get_running_loop(), Engine.open

    def open_engine(engine: Engine) -> None:
        opened(engine)
        loop.call_soon_threadsafe(is_open.set)

    monkeypatch.setattr(Engine, "open", open_engine)
    async with (
        running_world(settings, clock, has_sealer=False) as world,
        create_app(world.services.settings, clock).test_app(),
    ):
        await asyncio.wait_for(is_open.wait(), HANG_S)
        assert is_open.is_set()


async def test_an_engine_that_cannot_be_opened_does_not_keep_the_service_from_closing(
    settings: Settings, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
):
    """Rows are still taken in, and queries say what is wrong."""

    def fail(engine: Engine) -> None:
        raise StoreFault("out of memory")

    monkeypatch.setattr(Engine, "open", fail)
    async with running_world(settings, clock, has_sealer=False) as world:
        app = create_app(world.services.settings, clock)
        async with app.test_app() as running:
            answer = await running.app.test_client().get("/healthz")
            assert answer.status_code == 200
        assert app.extensions[EXTENSION].http.is_closed
