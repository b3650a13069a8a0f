"""Clocks that are wrong by any amount: no row that retention covers by the true time is deleted.

A machine's clock is wrong, the database's on PostgreSQL, or both by different amounts. Each refusal
says why, and no clock is accepted here. On PostgreSQL the search path finds a `clock_timestamp()`
of the test before the database's own.
"""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import service.store.store
from analytics.model.filters import Query
from analytics.model.retention import RETENTION_DAYS, Tier
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.audit.refusals import ClockNotTrusted
from service.core.clock import Clock, Uptime, utc_now
from service.orgs.organisations import create_org
from service.orgs.teams import create_team
from service.store.organisations import find_org, get_org
from tests.analytics.samples import sample_row
from tests.budgets import budget, sample
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.postgres import MIGRATED, PostgresServer

HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
KEPT = timedelta(days=RETENTION_DAYS[Tier.FREE] or 0)
NOTHING = timedelta(0)
SIZES = (4 * MINUTE, 6 * MINUTE, 47 * HOUR, 49 * HOUR, 7 * DAY, 31 * DAY, 400 * DAY)
OFFSETS = (NOTHING, *(sign * size for size in SIZES for sign in (1, -1)))
ACCEPTED_BY_BOTH = 5 * MINUTE


@dataclass
class Machine:
    """A service on a machine, and what was stored in it, with the true time until it is covered."""

    folder: Path
    database_url: str = ""
    set_database: Callable[[timedelta], None] = lambda _: None
    true: datetime = START
    off: timedelta = NOTHING
    database_off: timedelta = NOTHING
    services: Services | None = None
    covered: dict[str, datetime] = field(default_factory=dict)
    refusals: list[ClockNotTrusted] = field(default_factory=list)
    committed_at: datetime = START

    def now(self) -> datetime:
        return (utc_now() if self.database_url else self.true) + self.off

    def uptime(self) -> Uptime:
        """It counts the true time."""
        return Uptime("only", (self.now() - self.off - START).total_seconds())

    @property
    def true_now(self) -> datetime:
        """The true time."""
        return self.now() - self.off

    def wrong_by(self, off: timedelta, database_off: timedelta | None = None) -> None:
        self.off = off
        self.database_off = off if database_off is None else database_off
        self.set_database(self.database_off)

    def passes(self, time: timedelta) -> None:
        """Let the true time go on, which only a simulated one does."""
        self.true += time

    async def restart(self) -> None:
        """Stop the service if it runs, and start it."""
        await self.stop()
        settings = settings_over(self.folder, self.database_url)
        self.services = build_services(await prepare(settings, self.clock), self.clock)

    @property
    def clock(self) -> Clock:
        """As the service is given it: on PostgreSQL it must be the system's."""
        return service.store.store.utc_now if self.database_url else self.now

    async def stop(self) -> None:
        if self.services is not None:
            await self.services.close()
            self.services = None

    @property
    def running(self) -> Services:
        assert self.services is not None
        return self.services

    async def write(self) -> None:
        """A change, and installs as their sender dates them, none that the service would refuse."""
        name = f"row {len(self.covered)}"
        async with self.running.store.write() as work:
            if await find_org(work.session, "acme") is None:
                await create_org(work, "acme", "free", BY_OPERATOR)
            acme = await get_org(work.session, "acme")
            await create_team(work, acme, name, BY_OPERATOR)
            ages = [KEPT - HOUR, DAY, NOTHING]
            rows = [
                sample_row(self.true_now - age, version=f"{name} of {number}")
                for number, age in enumerate(ages)
                if work.now - KEPT <= self.true_now - age <= work.now + MINUTE
            ]
            work.journal.add(acme.id, rows)
        self.covered |= {row.version or "": row.created_at + KEPT for row in rows}
        # Dated by the clock, which only the commit before it can contradict.
        dated = max(work.now, self.committed_at - ACCEPTED_BY_BOTH)
        self.covered[name] = dated + KEPT if dated <= self.true_now else self.true_now + KEPT
        self.committed_at = self.true_now

    async def prune(self) -> bool:
        """Let the service prune as it does by itself; False if it refuses, which it explains."""
        told = await self.running.clock_guard.refusal()
        refusal = None
        try:
            await self.running.pruner.prune_in_background()
        except ClockNotTrusted as error:
            refusal = error
        assert (told and told.reason) == (refusal and refusal.reason)
        if refusal is None:
            return True
        assert refusal.reason in {"late", "ahead", "different"}
        assert refusal.text.startswith("the ")
        assert "correct the clock, or if it is right" in refusal.text
        self.refusals.append(refusal)
        return False

    async def check(self) -> None:
        """Raise AssertionError unless every row that is covered is stored."""
        async with self.running.store.read() as session:
            acme = await find_org(session, "acme")
        if acme is None:
            return
        snapshot = await self.running.store.snapshot(acme.id)
        rows = await self.running.lake.queries.run(
            lambda reader: reader.page(snapshot, Query(), 100_000)
        )
        stored = set(rows["version"].to_pylist())
        stored |= {msgspec.json.decode(text).get("name") for text in rows["payload"].to_pylist()}
        missing = {name for name, until in self.covered.items() if until >= self.true_now} - stored
        assert not missing, (self.off, self.database_off, sorted(missing))


@pytest.fixture
async def machine(tmp_path, monkeypatch) -> AsyncIterator[Machine]:
    """A machine whose service has not been started yet."""
    made = Machine(tmp_path / "data")
    for module in ("composition", "bootstrap"):
        monkeypatch.setattr(f"service.app.{module}.machine_uptime", made.uptime)
    yield made
    await made.stop()


async def _used(machine: Machine) -> None:
    """Start the service with the right time, and use it."""
    await machine.restart()
    for _ in range(3):
        await machine.write()
        await machine.running.sealer.seal_due(everything=True)
        machine.passes(DAY)
        assert await machine.prune()
    await machine.write()


async def _try_all(machine: Machine, off: timedelta, database_off: timedelta | None = None) -> None:
    """Jump, start, prune, write, restart, prune; the same with the right time."""
    for wrong in ((off, database_off), (NOTHING, None)) * budget(1, 2):
        machine.wrong_by(*wrong)
        for _ in range(2):
            await machine.restart()
            await machine.prune()
            await machine.check()
            await machine.write()
            await machine.prune()
            await machine.check()


def _is_refused(off: timedelta, database_off: timedelta) -> bool:
    """Whether a run with clocks that jumped by so much is refused."""
    are_different = abs(off - database_off) > 5 * MINUTE
    return are_different or min(off, database_off) > 48 * HOUR


@sample(3)
@pytest.mark.parametrize("off", OFFSETS, ids=str)
async def test_a_machines_clock(machine, off):
    """Nothing that is covered goes, and what is refused is what could have gone early."""
    await _used(machine)
    machine.wrong_by(off)
    assert await machine.prune() is not _is_refused(off, off)

    await _try_all(machine, off)

    assert bool(machine.refusals) is (abs(off) > 48 * HOUR)


@sample(2)
@pytest.mark.parametrize("off", OFFSETS, ids=str)
async def test_a_wrong_clock_at_the_first_start_breaks_no_promise(machine, off):
    """There is no record yet; the first one is the wrong clock's own."""
    machine.wrong_by(off)
    await machine.restart()
    await machine.write()

    await _try_all(machine, off)

    assert bool(machine.refusals) is (abs(off) > 48 * HOUR)


@pytest.fixture
async def node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer
) -> AsyncIterator[Machine]:
    """A node of a database whose clock can be wrong, too. The true time is that of the test."""
    name = postgres.create_database(MIGRATED)
    with postgres.connect(name) as connection:
        connection.execute(_WRONG_CLOCK)
        connection.execute(f'ALTER DATABASE "{name}" SET search_path = public, wrong, pg_catalog')

        def set_database(off: timedelta) -> None:
            connection.execute("UPDATE wrong.clock SET ahead = %s", [off])

        made = Machine(tmp_path / "data", postgres.url(name), set_database)
        made.true = made.committed_at = utc_now()
        monkeypatch.setattr("service.store.store.utc_now", made.now)
        for module in ("composition", "bootstrap"):
            monkeypatch.setattr(f"service.app.{module}.machine_uptime", made.uptime)
        yield made
        await made.stop()
    postgres.drop_database(name)


_WRONG_CLOCK = """
    CREATE SCHEMA wrong;
    CREATE TABLE wrong.clock (ahead interval NOT NULL);
    INSERT INTO wrong.clock VALUES ('0');
    CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM wrong.clock)';
"""

PAIRS = [
    *((off, NOTHING) for off in OFFSETS),
    *((NOTHING, off) for off in OFFSETS[1:]),
    *((off, off) for off in OFFSETS[1:]),
    *itertools.pairwise(OFFSETS[1:]),
]
"""Of the node's clock and the database's: each alone, both alike, both by different amounts."""


@sample(3)
@pytest.mark.parametrize(("off", "database_off"), PAIRS, ids=str)
async def test_a_nodes_clock_and_the_databases(node, off, database_off):
    await _used(node)
    node.wrong_by(off, database_off)
    assert await node.prune() is not _is_refused(off, database_off)

    await _try_all(node, off, database_off)


async def test_a_command_goes_by_the_databases_clock_from_its_start(node):
    """Its own is right, and what the database says is asked before anything is judged by it."""
    await _used(node)
    node.wrong_by(NOTHING, 400 * DAY)
    await node.restart()

    assert not await node.prune()

    assert node.refusals[-1].reason == "different"
    await node.check()


async def test_many_small_steps(machine):
    """Each of less than 48 hours, with a run after each; a restart between them changes nothing."""
    await _used(machine)
    ran = 0
    for step in range(1, 25):
        machine.wrong_by(step * 47 * HOUR)
        machine.passes(HOUR)
        ran += await machine.prune()
        await machine.write()
        if step % 3 == 0:
            await machine.restart()
        await machine.check()

    assert ran == 1
    assert machine.refusals[-1].reason == "late"
    machine.wrong_by(NOTHING)
    assert await machine.prune()
    await machine.check()


@pytest.mark.parametrize("seed", range(budget(1, 20)))
async def test_no_sequence_of_clock_changes_and_jobs_breaks_a_promise(machine, seed):
    """Jumps, changes, runs, restarts and days that pass, in any order."""
    chance = random.Random(seed)
    await _used(machine)
    steps: list[Callable[[], Awaitable[object]]] = [
        machine.write,
        machine.prune,
        machine.restart,
        lambda: machine.running.sealer.seal_due(everything=True),
        lambda: machine.running.compactor.compact_due(everything=True),
        lambda: machine.running.garbage_collector.unlink_retired(),
    ]
    for number in range(budget(20, 40)):
        if chance.random() < 0.4:
            machine.wrong_by(chance.choice(OFFSETS))
        else:
            machine.passes(chance.choice([MINUTE, HOUR, DAY, 3 * DAY]))
        await chance.choice(steps)()
        await machine.prune()
        try:
            await machine.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}, step {number}")
            raise
