"""A crash at any step of an import: nothing of it is there, and the next one brings every row once.

After its commit everything is there, and the next one finds that it is.
"""

import asyncio
import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from service.audit.lease import HeldLease
from service.store.catalog import list_segment_ids
from service.store.store import Work
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.service.audit.test_crashes import GRACE_S, Power, PowerCut
from tests.service.audit.test_import import line, take

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


@pytest.fixture
def power(monkeypatch, filled):
    return Power(monkeypatch, filled.services.store)


async def crash(audit) -> None:
    with pytest.raises(PowerCut):
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
    await audit.services.sweeper.clear_orphans()
    clock.now = now
    async with audit.services.store.read() as session:
        known = await list_segment_ids(session)
    assert {path.stem for path in root.glob("tenant=*/day=*/*")} == known
    assert await audit.pages(limit=5) == after


@pytest.mark.parametrize("on_call", range(1, 4 * DAYS + 1))
async def test_a_crash_at_any_sync_loses_and_doubles_nothing(filled, power, on_call):
    """Two folders, the file, its name: four syncs for each day, before the commit."""
    before = await filled.pages(limit=5)
    power.cut_at_file_step(os, "fsync", on_call)

    await crash(filled)
    power.restore()

    await assert_a_retry_brings_each_row_once(filled, before)


async def test_there_are_no_other_syncs(filled, power):
    """Or the test above would have missed some."""
    power.cut_at_file_step(os, "fsync", 4 * DAYS + 1)

    assert (await take(filled, CONTENT)).rows == ROWS


@pytest.mark.parametrize("name", ["mkdir", "rename"])
@pytest.mark.parametrize("on_call", [1, DAYS])
async def test_a_crash_at_any_name_loses_and_doubles_nothing(filled, power, name, on_call):
    """A folder or a file more or less is no row more or less."""
    before = await filled.pages(limit=5)
    power.cut_at_file_step(Path, name, on_call)

    await crash(filled)
    power.restore()

    await assert_a_retry_brings_each_row_once(filled, before)


def cut_in_the_commit(power: Power, statement: str) -> None:
    """Before the first statement that begins so once the import's transaction has begun."""
    state = {"is_committing": False}

    def cut(connection, cursor, said, *rest):
        state["is_committing"] |= said.startswith("UPDATE leases SET expires_at")
        if state["is_committing"] and said.replace("\n", " ").startswith(statement):
            raise PowerCut

    power._listen("before_cursor_execute", cut)


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_crash_between_write_and_commit_loses_and_doubles_nothing(filled, power, statement):
    """Every file is there, and nobody names any of them."""
    before = await filled.pages(limit=5)
    cut_in_the_commit(power, statement)

    await crash(filled)
    power.restore()

    written = list(filled.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))
    assert len(written) >= DAYS
    await assert_a_retry_brings_each_row_once(filled, before)


async def test_a_crash_at_the_commit_loses_and_doubles_nothing(filled, power):
    """All of it or none of it."""
    before = await filled.pages(limit=5)
    power.cut_at_commit("INSERT INTO imported_files")

    await crash(filled)
    power.restore()

    await assert_a_retry_brings_each_row_once(filled, before)


async def test_a_crash_behind_the_commit_has_brought_everything(filled, monkeypatch):
    """The command never answered; the next one says when it was imported."""

    async def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(type(filled.services.lease), "_give_back", cut)
        await crash(filled)

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

    def written(self: HeldLease) -> AbstractAsyncContextManager[Work]:
        steps.append("commit")
        return write(self)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(HeldLease, "write", written)
    await take(filled, CONTENT)

    assert steps == ["fsync"] * 4 * DAYS + ["commit"]


KILLED_IMPORTER = """
import asyncio, io, os, sys
from datetime import datetime
from pathlib import Path
import msgspec
from analytics.import_files import FileKind, ImportFormat
from service.access.callers import cli_caller
from service.audit.importer import Job, Source, Watch
from service.orgs.repository import get_org
from service.services import build_services
from service.settings import Settings

settings = msgspec.convert(
    msgspec.json.decode(sys.argv[1]), Settings,
    dec_hook=lambda kind, value: Path(value) if kind is Path else value,
)
left = int(sys.argv[2])
real = os.fsync

def fsync(descriptor):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    real(descriptor)

os.fsync = fsync
now = datetime.fromisoformat(sys.argv[3])
content = sys.stdin.buffer.read()

async def run():
    services = build_services(settings, lambda: now)
    async with services.store.read() as session:
        org = await get_org(session, "acme")
    kind = FileKind(ImportFormat.NDJSON)
    source = Source("audit.ndjson", io.BytesIO(content), len(content), kind)
    job = Job(org, source, cli_caller("org_platform").stamp, False)
    await services.importer.take(job, Watch(lambda _: None, lambda _: None), 0.0)
    os.kill(os.getpid(), 9)

asyncio.run(run())
"""


async def killed_after(audit, syncs: int) -> None:
    """Import CONTENT in a process that is killed instead of its next sync, or at its end."""
    given = msgspec.json.encode(audit.services.settings, enc_hook=str).decode()
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED_IMPORTER, given, str(syncs), START.isoformat()],
        input=CONTENT,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -9, killed.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("syncs", [0, 2, 3, 7, 4 * DAYS - 1])
async def test_kill_9_in_the_middle_loses_and_doubles_nothing(filled, syncs):
    """A real process, really killed: its locks go with it, and the next one imports at once."""
    before = await filled.pages(limit=5)
    await killed_after(filled, syncs)

    await assert_a_retry_brings_each_row_once(filled, before)


@pytest.mark.slow
async def test_kill_9_behind_the_commit_has_brought_everything(filled):
    """It was durable before anybody was told."""
    await killed_after(filled, 1_000)

    rows = await filled.pages(event="install_allowed")
    assert len(rows) == len({row["packageName"] for row in rows}) == ROWS
    assert (await take(filled, CONTENT)).known_since == START
