"""A reader who takes long sees what was there when they began, whatever happens meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from service.store.lease import LeaseTaken
from tests.analytics.samples import sample_row
from tests.budgets import budget, sample
from tests.conftest import START

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = budget(8_000, 100_000)
LIMIT = 1_000
DAYS = 4
EVENT = "blocklist_hit"


def instant(n: int) -> datetime:
    """Spread over DAYS days before today, some hundred rows to an instant."""
    return START - timedelta(days=1 + n % DAYS, seconds=n * 7 % 271)


async def fill(audit) -> list[tuple[datetime, int]]:
    """ROWS rows, some sealed, some merged, some in the journal; created_at and number of each."""
    for first in range(0, ROWS, LIMIT):
        numbers = range(first, first + LIMIT)
        await audit.accept([sample_row(instant(n), version=str(n)) for n in numbers])
        if first in (ROWS // 4, ROWS // 2, 3 * ROWS // 4):
            await audit.seal()
        if first == ROWS // 2:
            await audit.services.compactor.compact_due(everything=True)
    return [(instant(n), n) for n in range(ROWS)]


@contextlib.asynccontextmanager
async def everything_at_work(audit) -> AsyncIterator[dict[str, int]]:
    """A writer, a sealer and a compactor, each as fast as it can; how often each has come round."""
    rounds = {"written": 0, "sealed": 0, "merged": 0}

    async def write() -> None:
        await audit.accept([sample_row(instant(n), version="late") for n in range(50)])
        rounds["written"] += 1

    async def seal() -> None:
        rounds["sealed"] += len(await audit.services.sealer.seal_due(everything=True))

    async def merge() -> None:
        rounds["merged"] += len(await audit.services.compactor.compact_due(everything=True))

    async def forever(work: Any) -> None:
        while True:
            with contextlib.suppress(LeaseTaken):
                await work()
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(forever(work)) for work in (write, seal, merge)]
    try:
        yield rounds
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), outcomes


async def everyone_came_round(rounds: dict[str, int]) -> None:
    """Wait until each has done so a few times: pages are read sooner than segments are merged."""
    while min(rounds.values()) <= 2:  # noqa: ASYNC110 - the clients have no event to set
        await asyncio.sleep(0.01)


@sample(1)
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_are_those_of_the_first_pages_instant(audit, order):
    expected = [n for _, n in sorted(await fill(audit), reverse=order == "desc")]
    query: dict[str, Any] = {"event": EVENT, "order": order, "limit": LIMIT}
    page = await audit.page(**query)
    seen = [int(entry["version"]) for entry in page["entries"]]

    async with everything_at_work(audit) as rounds:
        while page["next_cursor"] is not None:
            page = await audit.page(**query, cursor=page["next_cursor"])
            seen += [int(entry["version"]) for entry in page["entries"]]
            if len(seen) == ROWS // 2:
                await everyone_came_round(rounds)

    assert seen == expected
    late = await audit.page(event=EVENT, version="late")
    assert late["entries"]
