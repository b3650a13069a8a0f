"""Guards pruning against a clock that jumped ahead.

A clock that is a year ahead makes a year of history look past retention. So every pruning run
records its time, and refuses to run if the clock is far past the last record. `prepare` makes the
first record, so that even the first run is checked.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_us, parse_instant
from service.errors import ClockNotTrusted, NoClockRecord
from service.store.store import Store
from service.store.tables import Fact

STEP_MAX: Final = timedelta(hours=48)
"""How far the clock may be past the last run; a service that was off for longer must confirm."""

_FACT: Final = "pruner_clock"


async def check_clock(session: AsyncSession, now: datetime) -> None:
    """Raise ClockNotTrusted if `now` is more than STEP_MAX past the record.

    A clock behind the record is accepted: it only makes fewer days past retention. The run then
    records the earlier time, so that a later correction by more than STEP_MAX must be confirmed
    like any other jump. Raises NoClockRecord if there is no record.
    """
    fact = await session.get(Fact, _FACT)
    if fact is None:
        raise NoClockRecord
    last_run_at = parse_instant(fact.value)
    if now - last_run_at > STEP_MAX:
        raise ClockNotTrusted(now, last_run_at)


async def record_clock(session: AsyncSession, now: datetime) -> None:
    """Record `now` as the time of the last run."""
    await session.merge(Fact(name=_FACT, value=format_us(now)))


async def begin_clock_record(store: Store) -> None:
    """Make the first record, unless there is one already."""
    async with store.write() as work:
        if await work.session.get(Fact, _FACT) is None:
            await record_clock(work.session, work.now)
