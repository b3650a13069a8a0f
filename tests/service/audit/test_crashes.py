"""A crash at any step of a seal leaves every row visible exactly once."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import event

from service.store.catalog import list_segment_ids
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over

EVENT = "blocklist_hit"
GRACE_S = 3600.0
STATEMENTS = ["UPDATE leases", "DELETE FROM journal", "INSERT INTO segments"]


class PowerCut(BaseException):
    """The process ends here."""


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(settings_over(tmp_path), orphan_grace_s=GRACE_S)


@pytest.fixture
async def filled(audit):
    """Three batches of acme's on one day."""
    for _ in range(3):
        await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(4)])
    return audit


@pytest.fixture
def power(monkeypatch, filled):
    """Cuts the power at a step: `power(what, on_call)`; `power.restore()` turns it on again."""
    return Power(monkeypatch, filled.services.store)


class Power:
    """Turns one step outside our own code into the last one."""

    def __init__(self, monkeypatch, store) -> None:
        self._monkeypatch = monkeypatch
        self._writer = store._engines.writer.sync_engine
        self._restore = []

    def cut_at_file_step(self, owner, name: str, on_call: int) -> None:
        """Instead of the `on_call`-th call of `owner.name`."""
        calls = iter(range(1, 1000))
        original = getattr(owner, name)

        def cut(*arguments, **options):
            if next(calls) == on_call:
                raise PowerCut
            return original(*arguments, **options)

        self._monkeypatch.setattr(owner, name, cut)

    def cut_before_statement(self, beginning: str) -> None:
        """Instead of the first SQL statement that begins so, inside the commit of a segment."""
        state = {"is_sealing": False}

        def cut(connection, cursor, statement, *rest):
            # The lease is taken with an UPDATE too; the one meant follows the written file.
            state["is_sealing"] |= statement.startswith("UPDATE leases SET expires_at")
            if state["is_sealing"] and statement.startswith(beginning):
                raise PowerCut

        self._listen("before_cursor_execute", cut)

    def cut_at_commit(self, when_statement: str) -> None:
        """Instead of the COMMIT of the transaction that runs `when_statement`."""
        state = {"is_armed": False}

        def arm(connection, cursor, statement, *rest):
            state["is_armed"] |= statement.startswith(when_statement)

        def cut(connection):
            if state["is_armed"]:
                raise PowerCut

        self._listen("before_cursor_execute", arm)
        self._listen("commit", cut)

    def _listen(self, name, listener) -> None:
        event.listen(self._writer, name, listener)
        self._restore.append(lambda: event.remove(self._writer, name, listener))

    def restore(self) -> None:
        self._monkeypatch.undo()
        for undo in self._restore:
            undo()


async def crash(audit) -> None:
    """Seal everything, into the power cut."""
    with pytest.raises(PowerCut):
        await audit.services.sealer.seal_due(everything=True)


async def assert_all_is_well(audit, before: list[dict]) -> None:
    """Every row once; after a restart too, and once sealed, and orphans go after the grace."""
    assert await audit.pages(limit=5) == before
    await audit.seal()
    assert await audit.pages(limit=5) == before
    root = audit.services.settings.audit_dir
    files = set(root.glob("tenant=*/day=*/*"))
    named = {path for path in files if path.stem in await segment_ids(audit)}

    # Files have the times of this machine, not those of the test's clock.
    clock, now = audit.clock, audit.clock.now
    clock.now = datetime.now(UTC) + timedelta(seconds=GRACE_S - 60)
    assert await audit.services.sweeper.clear_orphans() == 0
    clock.now += timedelta(seconds=120)
    assert await audit.services.sweeper.clear_orphans() == len(files - named)
    clock.now = now

    assert set(root.glob("tenant=*/day=*/*")) == named
    assert await audit.pages(limit=5) == before


async def segment_ids(audit) -> set[str]:
    async with audit.services.store.read() as session:
        return await list_segment_ids(session)


@pytest.mark.parametrize("on_call", [1, 2, 3, 4])
async def test_a_crash_at_any_sync_loses_and_doubles_nothing(filled, power, on_call):
    """Two folders, the file, its name: four syncs before the commit."""
    before = await filled.pages(limit=5)
    power.cut_at_file_step(os, "fsync", on_call)

    await crash(filled)
    power.restore()

    await assert_all_is_well(filled, before)


@pytest.mark.parametrize(("name", "on_call"), [("mkdir", 1), ("mkdir", 2), ("rename", 1)])
async def test_a_crash_at_any_name_loses_and_doubles_nothing(filled, power, name, on_call):
    """A folder or a file more or less is no row more or less."""
    before = await filled.pages(limit=5)
    power.cut_at_file_step(Path, name, on_call)

    await crash(filled)
    power.restore()

    await assert_all_is_well(filled, before)


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_crash_between_write_and_commit_loses_and_doubles_nothing(filled, power, statement):
    """The file is there and nobody names it; the journal is untouched."""
    before = await filled.pages(limit=5)
    power.cut_before_statement(statement)

    await crash(filled)
    power.restore()

    assert list(filled.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))
    await assert_all_is_well(filled, before)


async def test_a_crash_at_the_commit_loses_and_doubles_nothing(filled, power):
    """All of the swap or none of it."""
    before = await filled.pages(limit=5)
    power.cut_at_commit("INSERT INTO segments")

    await crash(filled)
    power.restore()

    await assert_all_is_well(filled, before)


KILLED_SEALER = """
import asyncio, os, sys
from datetime import datetime
from pathlib import Path
import msgspec
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
services = build_services(settings, lambda: now)
asyncio.run(services.sealer.seal_due(everything=True))
asyncio.run(services.close())
"""


@pytest.mark.slow
@pytest.mark.parametrize("syncs", [0, 1, 2, 3, 4, 7])
async def test_kill_9_in_the_middle_of_a_seal_loses_and_doubles_nothing(filled, syncs):
    """A real process, really killed: its locks go with it, and the next one seals at once."""
    before = await filled.pages(limit=5)
    given = msgspec.json.encode(filled.services.settings, enc_hook=str).decode()

    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED_SEALER, given, str(syncs), START.isoformat()],
        check=False,
        capture_output=True,
    )

    assert killed.returncode == -9, killed.stderr.decode()
    await assert_all_is_well(filled, before)
