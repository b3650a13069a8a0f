"""A crash at any step of an import: nothing of it is there, and the next one brings every row once.

After its commit everything is there, and the next one finds that it is.
"""

import os
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from service.store.catalog import list_segment_ids
from service.store.lease import HeldLease
from service.store.store import UnitOfWork
from tests.analytics.samples import sample_row
from tests.budgets import only_full, sample
from tests.conftest import START, settings_over
from tests.power import Last, PowerCut, at, kill_process, power_cut
from tests.service.audit.test_import import line, take

GRACE_S = 3600.0
DAYS, ROWS = 3, 12
CONTENT = b"".join(
    line(START - timedelta(days=number % DAYS), f"p{number}") for number in range(ROWS)
)
STATEMENTS = [
    "UPDATE leases",
    "SELECT imported_files",
    "UPDATE counters",
    "INSERT INTO segments",
    "INSERT INTO imported_files",
    "INSERT INTO journal",
]

SYNCS = 3 * DAYS + 2
"""Of each day the file, the index and the folder; then the folders of the tenant and of all."""


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(settings_over(tmp_path), orphan_grace_s=GRACE_S)


@pytest.fixture
async def filled(audit):
    """Some rows, sealed and not, that an import must leave alone."""
    await audit.accept([sample_row(START, package_name="sealed")])
    await audit.seal()
    await audit.accept([sample_row(START, package_name="journalled")])
    return audit


async def crash(audit, is_last: Last) -> None:
    """Import CONTENT, into the power cut."""
    with power_cut(audit.services.store, is_last), pytest.raises(PowerCut):
        await take(audit, CONTENT)


def without_the_import(entries: list[dict]) -> list[dict]:
    imported = {f"p{number}" for number in range(ROWS)}
    return [
        row
        for row in entries
        if row["packageName"] not in imported and row["event"] != "audit_imported"
    ]


async def assert_a_retry_brings_each_row_once(audit, before: list[dict]) -> None:
    """Nothing before it, everything after it, once; and what was left behind is swept."""
    root = audit.services.settings.audit_dir
    assert await audit.pages(limit=5) == before

    result = await take(audit, CONTENT)

    assert (result.rows, len(result.days)) == (ROWS, DAYS)
    after = await audit.pages(limit=5)
    assert without_the_import(after) == before
    names = [row["packageName"] for row in after if row["event"] == "install_allowed"]
    assert sorted(names) == sorted(f"p{number}" for number in range(ROWS))
    assert sum(row["event"] == "audit_imported" for row in after) == 1
    assert (await take(audit, CONTENT)).known_since is not None
    clock, now = audit.clock, audit.clock.now
    clock.now = datetime.now(UTC) + timedelta(seconds=GRACE_S + 60)
    await audit.services.garbage_collector.clear_orphans()
    clock.now = now
    async with audit.services.store.read() as session:
        known = await list_segment_ids(session)
    assert {path.stem for path in root.glob("tenant=*/day=*/*")} == known
    assert await audit.pages(limit=5) == after


@sample(2)
@pytest.mark.parametrize(
    "number",
    [
        1,  # none is synced
        2 * DAYS + 1,  # all have their names
        SYNCS,
        *(pytest.param(number, marks=only_full) for number in range(2, 2 * DAYS + 1)),
        *(pytest.param(number, marks=only_full) for number in range(2 * DAYS + 2, SYNCS)),
    ],
)
async def test_a_crash_at_any_sync_loses_and_doubles_nothing(filled, number):
    before = await filled.pages(limit=5)

    await crash(filled, at("fsync", number))

    await assert_a_retry_brings_each_row_once(filled, before)


async def test_there_are_no_other_syncs(filled):
    """Otherwise the test above would have missed some."""
    with power_cut(filled.services.store, at("fsync", SYNCS + 1)):
        assert (await take(filled, CONTENT)).rows == ROWS


@sample(2)
@pytest.mark.parametrize("name", ["mkdir", "rename"])
@pytest.mark.parametrize("number", [1, 2, DAYS + 1])
async def test_a_crash_at_any_name_loses_and_doubles_nothing(filled, name, number):
    before = await filled.pages(limit=5)

    await crash(filled, at(name, number))

    await assert_a_retry_brings_each_row_once(filled, before)


@pytest.mark.parametrize("number", [1, DAYS])
async def test_a_crash_while_files_are_renewed_loses_and_doubles_nothing(filled, number):
    before = await filled.pages(limit=5)

    await crash(filled, at("utime", number))

    await assert_a_retry_brings_each_row_once(filled, before)


@sample(2)
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_crash_between_write_and_commit_loses_and_doubles_nothing(filled, statement):
    before = await filled.pages(limit=5)

    await crash(filled, at(statement, after="UPDATE leases SET expires_at"))

    written = list(filled.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))
    assert len(written) >= DAYS
    await assert_a_retry_brings_each_row_once(filled, before)


async def test_a_crash_at_the_commit_loses_and_doubles_nothing(filled):
    before = await filled.pages(limit=5)

    await crash(filled, at("COMMIT", after="INSERT INTO imported_files"))

    await assert_a_retry_brings_each_row_once(filled, before)


async def test_a_crash_behind_the_commit_has_brought_everything(filled):
    # The commit gives the lease back; by then the import has committed.
    await crash(filled, at("UPDATE leases", after="INSERT INTO imported_files"))

    again = await take(filled, CONTENT)
    assert (again.rows, again.known_since) == (0, START)
    rows = await filled.pages(event="install_allowed")
    assert len(rows) == len({row["packageName"] for row in rows}) == ROWS


async def test_every_file_is_durable_before_the_commit_begins(filled, monkeypatch):
    """Its contents, its name and its folders: what the catalog names must be there."""
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
    await take(filled, CONTENT)

    assert steps == ["fsync"] * SYNCS + ["commit"]


async def kill_import(audit, beginning: str, number: int = 1) -> None:
    """Import CONTENT in a process that is killed there."""
    settings = audit.services.settings
    await kill_process(settings, START, "import", beginning, number, content=CONTENT)


@sample(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("fsync", 1),
        ("fsync", SYNCS),
        *(pytest.param("fsync", number, marks=only_full) for number in (3, 4, 8)),
        ("UPDATE leases", 1),  # it takes the lease
        pytest.param("utime", DAYS, marks=only_full),
        *(pytest.param(statement, 1, marks=only_full) for statement in STATEMENTS[1:-1]),
        (STATEMENTS[-1], 1),
        ("COMMIT", 2),  # the first is that of the lease
    ],
)
async def test_kill_9_in_the_middle_loses_and_doubles_nothing(filled, step, number):
    before = await filled.pages(limit=5)

    await kill_import(filled, step, number)

    await assert_a_retry_brings_each_row_once(filled, before)


@pytest.mark.slow
async def test_what_a_killed_import_leaves_is_swept_once_the_grace_is_over(filled):
    root = filled.services.settings.audit_dir
    known = {path.stem for path in root.glob("tenant=*/day=*/*")}

    await kill_import(filled, "INSERT INTO segments")

    left = [path for path in root.glob("tenant=*/day=*/*") if path.stem not in known]
    assert len(left) == 2 * DAYS  # segments and their indexes
    filled.clock.advance(seconds=GRACE_S)
    assert await filled.services.garbage_collector.clear_orphans() == 0
    filled.clock.advance(seconds=1)
    assert await filled.services.garbage_collector.clear_orphans() == 2 * DAYS
    assert {path.stem for path in root.glob("tenant=*/day=*/*")} == known


@pytest.mark.slow
async def test_kill_9_behind_the_commit_has_brought_everything(filled):
    await kill_import(filled, "END")

    rows = await filled.pages(event="install_allowed")
    assert len(rows) == len({row["packageName"] for row in rows}) == ROWS
    assert (await take(filled, CONTENT)).known_since == START
