"""The clock that pruning goes by, and the record of what it last said.

A clock that steps ahead by a year makes a year of history look past retention. So every pruning
run leaves its instant on record, and one that finds the clock far past the record does not trust
it. `prepare` makes the first record: not even the first run goes by the clock alone.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_us, parse_instant
from service.errors import ClockNotTrusted, NoClockRecord
from service.store.store import Store
from service.store.tables import Fact

STEP_MAX: Final = timedelta(hours=48)
"""How far past the last run the clock may stand; a service that was off for longer asks, too."""

_FACT: Final = "pruner_clock"


async def check_clock(session: AsyncSession, now: datetime) -> None:
    """Raise ClockNotTrusted if `now` is more than STEP_MAX past the record, else nothing.

    A clock behind the record is no reason to refuse: fewer days are past retention by it. The run
    puts its own instant on record all the same, so when the clock is set right again, by more
    than STEP_MAX, that step is asked about like any other. Raises NoClockRecord if there is none.
    """
    fact = await session.get(Fact, _FACT)
    if fact is None:
        raise NoClockRecord
    last_run_at = parse_instant(fact.value)
    if now - last_run_at > STEP_MAX:
        raise ClockNotTrusted(now, last_run_at)


async def record_clock(session: AsyncSession, now: datetime) -> None:
    """Put `now` on record: what the next run is measured against."""
    await session.merge(Fact(name=_FACT, value=format_us(now)))


async def begin_clock_record(store: Store) -> None:
    """Make the first record, unless there is one."""
    async with store.write() as work:
        if await work.session.get(Fact, _FACT) is None:
            await record_clock(work.session, work.now)
