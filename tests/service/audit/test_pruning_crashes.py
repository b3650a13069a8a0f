"""A crash at any step of pruning drops a day whole or not at all, and says so exactly once."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import event, select

from service.store.tables import SegmentEntry
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.service.audit.pruning import add_past, always_on, left, prune, pruned_rows

GRACE_S = 100.0


class PowerCut(BaseException):
    """The process ends here."""


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path), export_max_s=GRACE_S - 1, query_max_s=1.0
    )


@pytest.fixture
async def past(audit):
    """12 old rows, sealed and not, and a new one."""
    await always_on(audit, "free")
    await add_past(audit)
    await audit.accept([sample_row(START)])
    return audit


async def assert_all_or_nothing(past, stored: list[str]) -> bool:
    """True when the old days are gone, and the log says so; False when all is as it was."""
    now, said = await left(past), [row["payload"]["rows"] for row in await pruned_rows(past)]
    assert (now, said) in [(stored, []), (stored[:1], [12])]
    return bool(said)


@pytest.mark.parametrize("step", ["before_cursor_execute", "commit"])
async def test_a_crash_at_any_statement_or_commit_loses_and_doubles_nothing(past, step):
    """Each step of a run is once the last one; what is left is found by the next run."""
    stored = await left(past)
    assert len(stored) == 13
    writer = past.services.store._engines.writer.sync_engine
    for last in count(1):
        steps = count(1)

        def cut(*_: object, steps=steps, last=last) -> None:
            if next(steps) == last:
                raise PowerCut

        event.listen(writer, step, cut)
        try:
            await prune(past)
        except PowerCut:
            event.remove(writer, step, cut)
            is_gone = await assert_all_or_nothing(past, stored)
            if is_gone:
                break  # only giving back the lease was left to do
        else:
            event.remove(writer, step, cut)
            break

    assert last > (8 if step == "before_cursor_execute" else 3)
    assert await prune(past) == []
    assert await assert_all_or_nothing(past, stored)


async def lines(past) -> int:
    """How many files of old days the catalog names."""
    async with past.services.store.read() as session:
        found = await session.scalars(
            select(SegmentEntry).where(SegmentEntry.retired_at.is_not(None))
        )
        return len(found.all())


@pytest.mark.parametrize("on_call", [1, 2])
async def test_a_crash_at_an_unlink_leaves_it_to_the_next_sweep(past, monkeypatch, on_call):
    """Readers are gone by then; a line whose file is gone is taken out like any other."""
    stored = await left(past)
    await prune(past)
    past.clock.advance(seconds=GRACE_S + 1)
    unlink, calls = Path.unlink, count(1)

    def cut(path, **options):
        if next(calls) == on_call:
            raise PowerCut
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", cut)
        with pytest.raises(PowerCut):
            await past.services.sweeper.unlink_retired()

    assert await assert_all_or_nothing(past, stored)
    assert await lines(past) == 2
    assert await past.services.sweeper.unlink_retired() == 2
    assert await lines(past) == 0
    assert not list(past.services.settings.audit_dir.glob("*/day=2026-02-*/*"))
    assert await assert_all_or_nothing(past, stored)


KILLED_PRUNER = """
import asyncio, os, sys
from datetime import datetime
from pathlib import Path
import msgspec
from sqlalchemy import event
from service.services import build_services
from service.settings import Settings

settings = msgspec.convert(
    msgspec.json.decode(sys.argv[1]), Settings,
    dec_hook=lambda kind, value: Path(value) if kind is Path else value,
)
now = datetime.fromisoformat(sys.argv[3])
services = build_services(settings, lambda: now)
writer = services.store._engines.writer.sync_engine
unlink = Path.unlink
seen = []

def at(step):
    if step.startswith(sys.argv[2]) and (sys.argv[2] != "COMMIT" or "INSERT" in " ".join(seen)):
        os.kill(os.getpid(), 9)
    seen.append(step)

event.listen(writer, "before_cursor_execute", lambda c, u, statement, *rest: at(statement))
event.listen(writer, "commit", lambda connection: at("COMMIT"))
Path.unlink = lambda path, **options: (at("unlink"), unlink(path, **options))

async def run():
    if sys.argv[2] == "unlink":
        await services.sweeper.unlink_retired()
    else:
        await services.pruner.prune_in_background()
    await services.close()

asyncio.run(run())
"""


async def kill_at(past, step: str) -> None:
    """A real process, killed for real at `step`."""
    given = msgspec.json.encode(past.services.settings, enc_hook=str).decode()
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED_PRUNER, given, step, past.clock.now.isoformat()],
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -9, killed.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["UPDATE segments", "DELETE FROM journal", "UPDATE counters", "INSERT INTO journal", "COMMIT"],
)
async def test_kill_9_before_the_commit_changes_nothing(past, step):
    """Its locks go with it, and the next run drops everything at once."""
    stored = await left(past)

    await kill_at(past, step)

    assert not await assert_all_or_nothing(past, stored)
    await prune(past)
    assert await assert_all_or_nothing(past, stored)


@pytest.mark.slow
async def test_kill_9_at_an_unlink_leaves_it_to_the_next_sweep(past):
    """The days are gone either way."""
    stored = await left(past)
    await prune(past)
    past.clock.now += timedelta(seconds=GRACE_S + 1)

    await kill_at(past, "unlink")

    assert await assert_all_or_nothing(past, stored)
    assert await past.services.sweeper.unlink_retired() == 2
    assert await lines(past) == 0
