"""Results of many rows are mapped in parts: other requests have their turn in between."""

import asyncio
from itertools import count

import pytest
from sqlalchemy import select

from service.store.batching import PART_ROWS, rows_of
from service.store.tables import Project

ROWS = 3 * PART_ROWS + 1


@pytest.mark.parametrize("query", [select(Project), select(Project.id, Project.name)])
async def test_other_tasks_run_after_each_part_of_a_result(world, query):
    """10,000 mapped at once held the event loop for 100 ms."""
    names = [f"{number:05}" for number in range(ROWS)]
    async with world.services.store.write() as work:
        work.session.add_all(
            Project(id=f"{name}p", tenant_id=world.acme.id, name=name, created_at=work.now)
            for name in names
        )
    turns, turn, in_turn = count(), 0, [0]

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn = next(turns)
            await asyncio.sleep(0)

    def make(*columns: object) -> str:
        in_turn.append(in_turn.pop() + 1 if seen[-1:] == [turn] else 1)
        peaks.append(in_turn[-1])
        seen.append(turn)
        return columns[0].name if isinstance(columns[0], Project) else columns[1]

    seen: list[int] = []
    peaks: list[int] = []
    other = asyncio.create_task(take_turns())
    async with world.services.store.read() as session:
        wanted = query.where(Project.name.in_(names)).order_by(Project.name)
        made = await rows_of(session, wanted, make)
    other.cancel()

    assert made == names
    assert max(peaks) == PART_ROWS
    assert len(set(seen)) == 4
