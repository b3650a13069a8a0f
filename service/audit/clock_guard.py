"""Guards pruning against clocks that jump ahead.

A clock that is a year ahead makes a year of history look past retention. Each run therefore records
its instant and how long its machine has been running, and a run is refused if

- the clock is more than STEP_MAX past the last run, or
- it has moved more than STEP_MAX further than the machine has run, in one jump or in many, or
- the database's clock and this machine's differ by more than DIFFERENCE_MAX.

What passes is at most STEP_MAX ahead, and a day is deleted only that long after its retention
(`PRUNE_DELAY`): so no row is deleted early. `prepare` makes the first record, so that even the
first run is checked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_ms, format_us, parse_instant
from analytics.model.retention import PRUNE_DELAY
from service.audit.refusals import ClockNotTrusted, ClockRefusal
from service.core.clock import Uptime
from service.store.store import Store
from service.store.tables import Fact

STEP_MAX: Final = PRUNE_DELAY
"""How far the clock may be past the last run; a service that was off for longer must confirm."""

_STEP_HOURS: Final = STEP_MAX // timedelta(hours=1)

DIFFERENCE_MAX: Final = timedelta(minutes=5)

READINGS_MAX: Final = 32
"""The machine starts that are remembered: those with the latest runs."""

_LAST_RUN: Final = "pruner_clock"
_READINGS: Final = "pruner_uptimes"


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the clocks show at one instant: the store's, this machine's, and its uptime.

    Without a clock of the database, the store's is the machine's.
    """

    store: datetime
    machine: datetime
    uptime: Uptime

    @property
    def now(self) -> datetime:
        """The earlier one: by it fewer rows are past retention."""
        return min(self.store, self.machine)


class ClockReading(msgspec.Struct, frozen=True):
    """The last run on a machine since its start: by the clock, and by the machine's uptime.

    By then the clock had moved `ahead_s` further than the machine had run.
    """

    at: datetime
    uptime_s: float
    ahead_s: float


@dataclass(frozen=True, slots=True)
class ClockRecord:
    """The last run, and the last one of each machine, by its start."""

    last_run_at: datetime
    readings: dict[str, ClockReading]

    def ahead_s(self, clocks: Clocks) -> float:
        """How much further the clock has moved than the machine has run, never less than 0.

        A clock that was set back gains nothing for a later jump. What a machine did while it was
        off is not known: it begins with what others have measured.
        """
        last = self.readings.get(clocks.uptime.boot)
        if last is None:
            return max((reading.ahead_s for reading in self.readings.values()), default=0.0)
        moved_s = (clocks.now - last.at).total_seconds()
        return max(0.0, last.ahead_s + moved_s - (clocks.uptime.seconds - last.uptime_s))

    def after_run(self, clocks: Clocks) -> "ClockRecord":
        """The record after a run by `clocks`. Raises ClockNotTrusted.

        A clock behind the record is accepted: it only makes fewer days past retention. The run then
        records the earlier time, so that a later correction by more than STEP_MAX must be confirmed
        like any other jump.
        """
        ahead_s = self.ahead_s(clocks)
        if why := self._refusal(clocks, ahead_s):
            raise ClockNotTrusted(*why, clocks.now, self.last_run_at)
        reading = ClockReading(clocks.now, clocks.uptime.seconds, ahead_s)
        readings = {**self.readings, clocks.uptime.boot: reading}
        latest = sorted(readings, key=lambda boot: readings[boot].at)[-READINGS_MAX:]
        return ClockRecord(clocks.now, {boot: readings[boot] for boot in latest})

    def _refusal(self, clocks: Clocks, ahead_s: float) -> tuple[ClockRefusal, str] | None:
        now = format_ms(clocks.now)
        if abs(clocks.store - clocks.machine) > DIFFERENCE_MAX:
            store, machine = format_ms(clocks.store), format_ms(clocks.machine)
            why = f"the database's clock says {store}, but this machine's {machine}"
            return ClockRefusal.DIFFERENT, why
        if clocks.now - self.last_run_at > STEP_MAX:
            last_run = f"the last pruning run ({format_ms(self.last_run_at)})"
            why = f"the clock says {now}, over {_STEP_HOURS} hours past {last_run}"
            return ClockRefusal.LATE, why
        if ahead_s > STEP_MAX.total_seconds():
            further = f"{ahead_s / 3600:.0f} hours further than this machine has run"
            return ClockRefusal.AHEAD, f"the clock says {now}, and has moved {further}"
        return None


def accepted_record(clocks: Clocks) -> ClockRecord:
    """The record of clocks that are right: what was measured before is void."""
    reading = ClockReading(clocks.now, clocks.uptime.seconds, 0.0)
    return ClockRecord(clocks.now, {clocks.uptime.boot: reading})


async def load_record(session: AsyncSession) -> ClockRecord | None:
    """The record; None before the first one."""
    last_run = await session.get(Fact, _LAST_RUN)
    if last_run is None:
        return None
    stored = await session.get(Fact, _READINGS)
    readings = (
        {} if stored is None else msgspec.json.decode(stored.value, type=dict[str, ClockReading])
    )
    return ClockRecord(parse_instant(last_run.value), readings)


async def store_record(session: AsyncSession, record: ClockRecord) -> None:
    """Replace the record."""
    readings = msgspec.json.encode(record.readings).decode()
    await session.merge(Fact(name=_LAST_RUN, value=format_us(record.last_run_at)))
    await session.merge(Fact(name=_READINGS, value=readings))


async def begin_clock_record(store: Store, clocks: Clocks) -> None:
    """Make the first record, unless there is one already."""
    async with store.write() as work:
        if await load_record(work.session) is None:
            await store_record(work.session, accepted_record(clocks))


def record_after_run(record: ClockRecord | None, clocks: Clocks) -> ClockRecord:
    """See `ClockRecord.after_run`; without a record every run is refused."""
    if record is None:
        why = "no earlier run is on record (`countersign init` makes the first record)"
        raise ClockNotTrusted(ClockRefusal.NO_RECORD, why, clocks.now, None)
    return record.after_run(clocks)


class ClockGuard:
    """Compares the clocks with the record."""

    def __init__(self, store: Store, uptime: Callable[[], Uptime]) -> None:
        self._store = store
        self._uptime = uptime

    async def read(self) -> Clocks:
        """The clocks now. Raises StoreUnavailable."""
        store, machine = await self._store.read_clocks()
        return Clocks(store, machine, self._uptime())

    async def refusal(self) -> ClockNotTrusted | None:
        """Why a run would be refused now; None if it would not. Raises StoreUnavailable."""
        clocks = await self.read()
        record = await self._store.cached("the clock record", load_record)
        try:
            record_after_run(record, clocks)
        except ClockNotTrusted as refusal:
            return refusal
        return None
