"""How many exports an organisation may have under way at once, and when the next may begin."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.errors import StoreFault
from analytics.model.filters import Query
from service.audit.refusals import TOO_MANY_EXPORTS_OF_ALL, TOO_MANY_OWN_EXPORTS
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, START, refused, running_world
from tests.polling import until
from tests.service.audit.conftest import AuditWorld

AT_ONCE = 2
FULL = (429, "too many exports of yours at once: wait until one of them ends")
ORG_FULL = (429, "too many exports of this organisation at once: wait until one of them ends")
OF_ORG = 4


@pytest.fixture
async def filled(audit):
    """A row on each of four days: a started export has read ahead, and not yet to the last."""
    await audit.accept([sample_row(START - timedelta(days=days)) for days in range(4)])
    await audit.seal()
    return audit


async def start(audit, actor="system:admin-token"):
    by = replace(BY_OPERATOR, actor=actor)
    exporter = audit.services.exporter
    form = FileEncoding(ExportFormat.CSV)
    return await exporter.stream(await exporter.prepare(audit.world.acme, Query(), form, by, START))


async def is_free(audit) -> bool:
    """Whether acme may begin another export now."""
    response = await audit.export(format="csv")
    await response.get_data()
    return response.status_code == 200


async def test_one_more_than_may_is_a_429_that_says_when_to_come_back(filled):
    under_way = [await start(filled) for _ in range(AT_ONCE)]

    response = await filled.export(format="csv")

    assert await refused(response) == FULL
    assert int(response.headers["retry-after"]) > 0
    assert len((await filled.page(event="audit_exported"))["entries"]) == AT_ONCE
    for stream in under_way:
        await stream.aclose()


async def test_one_person_leaves_slots_to_the_others(filled):
    held = [await start(filled, "google:mem_1") for _ in range(AT_ONCE)]
    with pytest.raises(TOO_MANY_OWN_EXPORTS):
        await start(filled, "google:mem_1")

    others = [await start(filled, f"google:mem_{number}") for number in (2, 3)]

    assert len([*held, *others]) == OF_ORG
    assert await refused(await filled.export(format="csv")) == ORG_FULL
    for stream in (*held, *others):
        await stream.aclose()


async def test_exports_of_all_organisations_have_a_limit(settings, clock):
    """Many organisations with one export each must not take all there is, either."""
    changed = structs.replace(settings, exports_max=1)
    async with running_world(changed, clock, has_sealer=False) as world:
        audit = AuditWorld(world)
        held = await start(audit)

        response = await audit.export(format="csv")

        assert await refused(response) == (503, TOO_MANY_EXPORTS_OF_ALL.text)
        assert int(response.headers["retry-after"]) > 0
        await held.aclose()
        await until(lambda: not world.services.exporter._under_way)
        assert await is_free(audit)


async def test_another_organisation_is_not_held_up(filled):
    under_way = [await start(filled) for _ in range(AT_ONCE)]

    response = await filled.world.client.get(
        "/api/v1/admin/orgs/other/audit/export?format=csv", headers=filled.world.admin
    )

    assert response.status_code == 200
    await response.get_data()
    for stream in under_way:
        await stream.aclose()


async def test_a_third_that_waits_for_its_count_counts_already(filled):
    """Three that come at the same moment are still one too many."""
    begun = await asyncio.gather(
        *(filled.export(format="csv") for _ in range(AT_ONCE + 1)), return_exceptions=True
    )

    assert sorted(response.status_code for response in begun) == [200, 200, 429]


async def finish(stream, audit):
    assert b"".join([piece async for piece in stream])


async def leave_midway(stream, audit):
    await anext(stream)
    await stream.aclose()


async def leave_before_the_first_byte(stream, audit):
    del stream
    for _ in range(10):  # the event loop closes what is not referenced any more, a few steps later
        await asyncio.sleep(0)


async def be_cancelled(stream, audit):
    async def read():
        async for _ in stream:
            await asyncio.sleep(60)

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await stream.aclose()


async def break_off(stream, audit):
    files = list(audit.services.settings.audit_dir.glob("**/*.parquet"))
    moved = [file.rename(file.with_suffix(".moved")) for file in files]
    with pytest.raises(StoreFault):
        await finish(stream, audit)
    for file, elsewhere in zip(files, moved, strict=True):
        elsewhere.rename(file)


@sample(2)
@pytest.mark.parametrize(
    "end", [finish, leave_midway, leave_before_the_first_byte, be_cancelled, break_off]
)
async def test_however_an_export_ends_the_next_may_begin(filled, end):
    other = await start(filled)
    streams = [await start(filled)]
    assert not await is_free(filled)

    await end(streams.pop(), filled)

    assert await is_free(filled)
    await other.aclose()


async def test_what_never_began_takes_no_place(filled):
    file, *_ = filled.services.settings.audit_dir.glob(f"tenant={filled.world.acme.id}/*/*.parquet")
    moved = file.rename(file.with_suffix(".moved"))
    for _ in range(AT_ONCE + 1):
        assert (await filled.export(format="csv")).status_code == 503
    moved.rename(file)

    assert await is_free(filled)
