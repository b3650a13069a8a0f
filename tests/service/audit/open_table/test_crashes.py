"""A crash at any step of a publication or an expiry leaves a table that is right and readable."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from deltalake.exceptions import TableNotFoundError

from service.store.catalog import list_live_segments
from service.store.sqlite.files import file_of
from tests.analytics.samples import sample_row
from tests.budgets import budget, only_full, sample
from tests.conftest import START
from tests.crashes import PowerCut, kill_process, power_cut_after
from tests.service.audit.conftest import start_worker
from tests.service.audit.open_table.conftest import LakeWorld, answers_of
from tests.service.audit.open_table.test_removal import HOUR, merge, unlink

STEPS_MAX = 200
STRIDE = budget(29, 1)
"""Every how many steps a crash is tried."""

pytestmark = pytest.mark.slow


async def change(lake: LakeWorld) -> None:
    """Something to publish: one file more, and a merge that takes others away."""
    for n in range(2):
        await lake.audit.accept([sample_row(lake.audit.clock.now, package_name=f"c{n}")])
        await lake.audit.seal()
    lake.audit.clock.now += 48 * HOUR
    await lake.services.compactor.compact_due(everything=True)


async def assert_recovers(lake: LakeWorld) -> None:
    """The table is readable at once, and a new process makes it right, each file once."""
    with contextlib.suppress(KeyError, TableNotFoundError):  # not created yet
        await lake.assert_no_file_is_missing()
        answers_of(await lake.read())
    second = start_worker(lake.services.settings, lake.audit.clock)
    try:
        (published,) = await second.publisher.publish([lake.format])
    finally:
        await second.close()
    async with lake.services.store.read() as session:
        assert published.files == len(await list_live_segments(session))
    await lake.assert_published()


async def drop(lake: LakeWorld) -> None:
    """There is no table yet."""
    await lake.services.publisher.drop([lake.key()])


async def add(lake: LakeWorld) -> None:
    """Files are to be added to the table, and others to be removed from it."""
    await lake.publish()
    await change(lake)


async def supersede(lake: LakeWorld) -> None:
    """The snapshot before the last one is to expire."""
    await add(lake)
    await lake.publish()
    lake.audit.clock.now += 25 * HOUR


async def retire(lake: LakeWorld) -> None:
    """Files are to be unlinked that no snapshot names any more."""
    await merge(lake)
    lake.audit.clock.now += HOUR
    await lake.publish()
    lake.audit.clock.now += 25 * HOUR
    await lake.services.publisher.expire()


@dataclass(frozen=True)
class Operation:
    """What changes a table or its files, and what comes before it."""

    prepare: Callable[[LakeWorld], Awaitable[None]]
    work: Callable[[LakeWorld], Awaitable[Any]]

    async def crash_at_each(
        self, lake: LakeWorld, numbers: range, crash: Callable[[int], Awaitable[bool]]
    ) -> None:
        """Cut the operation off by `crash` at each of `numbers`, until it ends before (False)."""
        for number in numbers:
            await self.prepare(lake)
            before = None if self.prepare is drop else answers_of(await lake.read())
            if not await crash(number):
                break
            if before is not None:
                assert answers_of(await lake.read()) in (before, await lake.sealed())
            await assert_recovers(lake)
            await self.work(lake)
            await lake.services.publisher.expire()
            await unlink(lake)
            await lake.assert_published()

        assert numbers[0] < number < numbers[-1]


OPERATIONS = {
    "first publication": Operation(drop, LakeWorld.publish),
    "publication": Operation(add, LakeWorld.publish),
    "expiry": Operation(supersede, lambda lake: lake.services.publisher.expire()),
    "sweep": Operation(retire, unlink),
}


@sample(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("first publication", marks=only_full),
        "publication",
        pytest.param("expiry", marks=only_full),
        "sweep",
    ],
)
async def test_a_crash_at_any_step_is_made_good(filled, name):
    """Files are added and removed in one snapshot, or not at all, and those it names are there."""
    operation = OPERATIONS[name]

    async def cut_off(step: int) -> bool:
        try:
            with power_cut_after(step, filled.services.store):
                await operation.work(filled)
        except PowerCut:
            return True
        return False

    await operation.crash_at_each(filled, range(0, STEPS_MAX, STRIDE), cut_off)


@sample(2)
@pytest.mark.parametrize(
    ("beginning", "number"),
    [
        pytest.param("UPDATE leases", 2, id="before it reads", marks=only_full),
        pytest.param("mkdir", 2, id="among the folders", marks=only_full),
        pytest.param("fsync", 4, id="while files are synced"),
        pytest.param("INSERT INTO lake_tables", 1, id="before the catalog", marks=only_full),
        pytest.param("COMMIT", 3, id="before the commit"),
        pytest.param("UPDATE leases SET expires_at", 3, id="after the commit", marks=only_full),
    ],
)
async def test_a_publisher_that_is_killed_is_made_good(filled, beginning, number):
    settings = msgspec.structs.replace(
        filled.services.settings, lake_formats=(filled.format,), log_level="error"
    )

    await kill_process(settings, filled.audit.clock.now, "publish", beginning, number)

    await assert_recovers(filled)


@pytest.mark.sqlite_only(reason="tries each step on a copy of the database's file")
@only_full
async def test_a_publisher_killed_at_each_step_is_made_good(filled):
    settings = msgspec.structs.replace(
        filled.services.settings, lake_formats=(filled.format,), log_level="error"
    )
    assert file_of(settings.database).exists()
    await filled.audit.accept([sample_row(START)])
    for step in range(1, STEPS_MAX):
        await change(filled)
        try:
            await kill_process(settings, filled.audit.clock.now, "publish", "", step)
        except AssertionError:
            break
        await assert_recovers(filled)

    assert STRIDE < step < STEPS_MAX


async def test_metadata_is_durable_before_the_catalog_names_it(filled, file_steps):
    """Otherwise a power loss would leave a table that cannot be read."""
    await filled.publish()

    if filled.format == "iceberg":
        folder = filled.services.settings.lake_dir / "iceberg" / "audit"
        manifests = set((folder / "metadata").glob("*.avro"))
        written = manifests | set((folder / "versions").iterdir())
        folders = {folder, folder / "metadata", folder / "versions"}
    else:
        folder = filled.services.settings.audit_dir / "_delta_log"
        written, folders = set(folder.glob("*.json")), {folder, folder.parent}
    assert len(written) > 1
    synced = file_steps.synced_bytes
    assert {path: synced.get(path) for path in written} == {
        path: path.stat().st_size for path in written
    }
    assert folders <= set(synced)


async def test_a_checkpoint_is_durable_before_what_it_stands_for_is_removed(filled, file_steps):
    """Otherwise a power loss would leave a log without its beginning."""
    if filled.format != "delta":
        pytest.skip("Iceberg has no checkpoints")
    await filled.publish()
    await change(filled)
    await filled.publish()
    filled.audit.clock.now += 25 * HOUR
    (expired,) = await filled.services.publisher.expire()

    log = filled.services.settings.audit_dir / "_delta_log"
    checkpoint = {*log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"}
    assert expired.snapshots > 0
    assert len(checkpoint) == 2
    synced = file_steps.synced_bytes
    assert {path: synced.get(path) for path in checkpoint} == {
        path: path.stat().st_size for path in checkpoint
    }


@sample(2)
@pytest.mark.parametrize("left", [None, b"", b'{"vers', b"[]"])
async def test_a_checkpoint_without_a_pointer_to_it_is_written_again(filled, left):
    """An expiry was killed between the two: without the pointer no later one could end."""
    if filled.format != "delta":
        pytest.skip("Iceberg has no checkpoints")
    await supersede(filled)
    pointer = filled.services.settings.audit_dir / "_delta_log" / "_last_checkpoint"
    filled.delta(version=2).create_checkpoint()
    pointer.unlink()
    if left is not None:
        pointer.write_bytes(left)

    (expired,) = await filled.services.publisher.expire()

    assert expired.snapshots == 2
    assert pointer.exists()
    await filled.assert_published()
