"""The power goes, or the process is killed, at any step of what changes stored rows.

Each row is there exactly once, or all is as it was; the operation again completes it; and what was
left behind is swept.
"""

import os
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import pytest

from service.core.errors import StorageFull
from service.store.catalog import list_segment_ids
from service.store.lease import HeldLease
from service.store.store import UnitOfWork
from tests.budgets import only_full, sample
from tests.conftest import settings_over
from tests.crashes import PowerCut, at, full_disk, kill_process, power_cut, power_cut_after
from tests.service.audit.evidence.proving import checkpoints
from tests.service.audit.operations import DAYS, OPERATIONS, RETIRED_S, Seal

GRACE_S = 3600.0
SYNCS = {"seal": 12, "import": 3 * DAYS + 2}
"""Of each day the file, the index and the folder; of each tenant its folder; and that of all."""

LEASE = "UPDATE leases SET expires_at"
"""The commit confirms the lease first; it was taken by another statement."""

CRASHES: list[tuple[str, str, int, str]] = [
    *(("seal", "fsync", number, "") for number in range(1, SYNCS["seal"] + 1)),
    *(("seal", name, number, "") for name in ("mkdir", "rename") for number in (1, 2)),
    *(("seal", step, 1, LEASE) for step in ("UPDATE leases", "DELETE FROM journal")),
    ("seal", "INSERT INTO segments", 1, LEASE),
    ("seal", "COMMIT", 1, "INSERT INTO segments"),
    *(("merge", step, 1, "") for step in (LEASE, "UPDATE segments", "INSERT INTO segments")),
    ("merge", "COMMIT", 1, "INSERT INTO segments"),
    *(("unlink", "unlink", number, "") for number in (1, 2)),
    ("unlink", "DELETE FROM segments", 1, ""),
    *(("unlink pruned", "unlink", number, "") for number in (1, 2)),
    *(("import", "fsync", number, "") for number in range(1, SYNCS["import"] + 1)),
    *(("import", name, number, "") for name in ("mkdir", "rename") for number in (1, 2, DAYS + 1)),
    *(("import", "utime", number, "") for number in (1, DAYS)),
    *(
        ("import", step, 1, LEASE)
        for step in (
            "UPDATE leases",
            "SELECT imported_files",
            "UPDATE counters",
            "INSERT INTO segments",
            "INSERT INTO imported_files",
            "INSERT INTO journal",
        )
    ),
    ("import", "COMMIT", 1, "INSERT INTO imported_files"),
    *(
        ("sign", step, 1, "")
        for step in (
            LEASE,
            "UPDATE evidence_trees",
            "UPDATE evidence_tiles",
            "INSERT INTO evidence_checkpoints",
        )
    ),
    ("sign", "COMMIT", 1, "INSERT INTO evidence_checkpoints"),
]
"""An operation, and a step before its commit: its name, which of them, and after which other."""

KILLS: list[Any] = [
    ("seal", "fsync", 1, ""),
    pytest.param("seal", "fsync", 2, "", marks=only_full),
    pytest.param("seal", "fsync", SYNCS["seal"] // 2, "", marks=only_full),
    pytest.param("seal", "fsync", SYNCS["seal"] - 1, "", marks=only_full),
    ("seal", "fsync", SYNCS["seal"], ""),
    ("import", "fsync", 1, ""),
    *(pytest.param("import", "fsync", number, "", marks=only_full) for number in (3, 4, 8)),
    pytest.param("import", "fsync", SYNCS["import"], "", marks=only_full),
    pytest.param("import", "UPDATE leases", 1, "", marks=only_full),  # it takes the lease
    pytest.param("import", "utime", DAYS, "", marks=only_full),
    pytest.param("import", "UPDATE counters", 1, "", marks=only_full),
    pytest.param("import", "INSERT INTO segments", 1, "", marks=only_full),
    pytest.param("import", "INSERT INTO imported_files", 1, "", marks=only_full),
    pytest.param("import", "INSERT INTO journal", 1, "", marks=only_full),
    ("import", "COMMIT", 2, ""),  # the first is that of the lease
    ("prune", "UPDATE segments", 1, ""),
    pytest.param("prune", "DELETE FROM journal", 1, "", marks=only_full),
    pytest.param("prune", "UPDATE counters", 1, "", marks=only_full),
    pytest.param("prune", "INSERT INTO journal", 1, "", marks=only_full),
    # Commits before that one take the lease and record the clock.
    ("prune", "COMMIT", 1, "INSERT INTO journal"),
    ("unlink pruned", "unlink", 1, ""),
    pytest.param("sign", "UPDATE evidence_trees", 1, "", marks=only_full),
    ("sign", "INSERT INTO evidence_checkpoints", 1, ""),
    ("sign", "COMMIT", 1, "INSERT INTO evidence_checkpoints"),
]


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path),
        orphan_grace_s=GRACE_S,
        export_max_s=RETIRED_S - 30,
        query_max_s=30.0,
    )


async def segment_ids(audit) -> set[str]:
    async with audit.services.store.read() as session:
        return await list_segment_ids(session)


async def assert_it_is_completed(audit, operation: Seal, done: Any) -> None:
    """By doing it again; and files without a catalog line go after their grace, not before."""
    await operation.run(audit)
    assert await operation.see(audit) == done
    root = audit.services.settings.audit_dir
    files = set(root.glob("tenant=*/day=*/*"))
    known = await segment_ids(audit)
    named = {path for path in files if path.stem in known}
    assert {path.stem for path in named} == known

    # Files have the times of this machine, not those of the test's clock.
    clock, now = audit.clock, audit.clock.now
    clock.now = datetime.now(UTC) + timedelta(seconds=GRACE_S - 60)
    assert operation.is_dated or await audit.services.garbage_collector.clear_orphans() == 0
    clock.now += timedelta(seconds=120)
    assert await audit.services.garbage_collector.clear_orphans() == len(files - named)
    clock.now = now

    assert set(root.glob("tenant=*/day=*/*")) == named
    assert await operation.see(audit) == done


async def crash(audit, ending, name, last: tuple[str, int, str]) -> None:
    """Begin the operation, which ends at this step."""
    (step, number, after), operation = last, OPERATIONS[name]
    is_last = at(step, number, after=after)
    if ending == "kill -9":
        settings, now = audit.services.settings, audit.clock.now
        work, content = name.partition(" ")[0], operation.content
        await kill_process(settings, now, work, step, number, after=after, content=content)
    elif ending == "full disk":
        with full_disk(is_last), pytest.raises((StorageFull, OSError)):
            await operation.run(audit)
    else:
        with power_cut(audit.services.store, is_last), pytest.raises(PowerCut):
            await operation.run(audit)


async def check_crash(audit, ending, name, last: tuple[str, int, str]) -> None:
    operation = OPERATIONS[name]
    await operation.fill(audit)
    before = await operation.see(audit)

    await crash(audit, ending, name, last)

    assert await operation.see(audit) == before
    await assert_it_is_completed(audit, operation, operation.done(before))


@sample(16)
@pytest.mark.parametrize(("name", "step", "number", "after"), CRASHES)
async def test_a_crash_loses_and_doubles_nothing(audit, name, step, number, after):
    await check_crash(audit, "power", name, (step, number, after))


@sample(5)
@pytest.mark.parametrize(
    ("name", "step", "number", "after"),
    [crash for crash in CRASHES if crash[1] in {"fsync", "mkdir", "rename"}],
)
async def test_a_full_disk_loses_and_doubles_nothing(audit, name, step, number, after):
    await check_crash(audit, "full disk", name, (step, number, after))


@sample(8)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "step", "number", "after"), KILLS)
async def test_kill_9_loses_and_doubles_nothing(audit, name, step, number, after):
    """A real process, really killed: its locks go with it, and the next one works at once."""
    await check_crash(audit, "kill -9", name, (step, number, after))


async def test_a_crash_at_any_step_of_pruning_changes_all_or_nothing(audit):
    operation = OPERATIONS["prune"]
    await operation.fill(audit)
    before = await operation.see(audit)
    for steps in count():
        try:
            with power_cut_after(steps, audit.services.store):
                await operation.run(audit)
        except PowerCut:
            if await operation.see(audit) != before:
                break  # only giving back the lease was left to do
        else:
            break

    assert steps > 11
    await assert_it_is_completed(audit, operation, operation.done(before))


async def test_a_crash_at_any_step_of_signing_signs_no_second_root(audit):
    """What was seen signed before the crash stays as it is, and the rest is signed once."""
    operation = OPERATIONS["sign"]
    await operation.fill(audit)
    seen: dict[int, bytes] = {}
    for steps in count():
        try:
            with power_cut_after(steps, audit.services.store):
                await operation.run(audit)
        except PowerCut:
            for signed in await checkpoints(audit):
                assert seen.setdefault(signed.size, signed.root) == signed.root
        else:
            break

    assert steps > 8
    assert len(seen) == 2
    comparison = await audit.services.monitor.compare(audit.world.acme.id)
    assert (comparison.differences, comparison.checkpoints) == ([], 2)


@pytest.mark.parametrize("name", SYNCS)
async def test_there_are_no_other_syncs(audit, name):
    """Otherwise the test above would have missed some."""
    operation = OPERATIONS[name]
    await operation.fill(audit)
    before = await operation.see(audit)
    with power_cut(audit.services.store, at("fsync", SYNCS[name] + 1)):
        await operation.run(audit)

    assert await operation.see(audit) == operation.done(before)


@pytest.mark.parametrize(
    ("ending", "step", "after"),
    [
        # The commit gives the lease back; by then the import has committed.
        ("power", "UPDATE leases", "INSERT INTO imported_files"),
        pytest.param("kill -9", "END", "", marks=pytest.mark.slow),
    ],
)
async def test_a_crash_behind_the_commit_of_an_import_has_brought_everything(
    audit, ending, step, after
):
    operation = OPERATIONS["import"]
    await operation.fill(audit)
    done = operation.done(await operation.see(audit))

    await crash(audit, ending, "import", (step, 1, after))

    assert await operation.see(audit) == done
    await assert_it_is_completed(audit, operation, done)


async def test_a_sweep_that_is_paused_leaves_what_was_young(audit, monkeypatch):
    """The lease ended, and another process may have committed the file meanwhile."""
    operation = OPERATIONS["seal"]
    await operation.fill(audit)
    await crash(audit, "power", "seal", ("INSERT INTO segments", 1, ""))
    lake, root = audit.services.lake, audit.services.settings.audit_dir
    files = set(root.glob("tenant=*/day=*/*"))
    claimed_segments, clock = lake.claimed_segments, audit.clock

    async def claimed_after_hours(grace_s: float) -> set[str]:
        clock.advance(seconds=10 * GRACE_S)
        return await claimed_segments(grace_s)

    clock.now = datetime.now(UTC)
    monkeypatch.setattr(lake, "claimed_segments", claimed_after_hours)
    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert set(root.glob("tenant=*/day=*/*")) == files != set()


async def test_every_imported_file_is_durable_before_the_commit_begins(audit, monkeypatch):
    """Its contents, its name and its folders: what the catalog names must be there."""
    operation = OPERATIONS["import"]
    await operation.fill(audit)
    steps: list[str] = []
    fsync, write = os.fsync, HeldLease.write

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        steps.append("fsync")

    def written(self: HeldLease) -> AbstractAsyncContextManager[UnitOfWork]:
        steps.append("commit")
        return write(self)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(HeldLease, "write", written)
    await operation.run(audit)

    assert steps == ["fsync"] * SYNCS["import"] + ["commit"]
