"""When the garbage collector runs in a process that serves."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from service.app import collector
from service.app.collector import NEW_OBJECTS, collect_when_quiet


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """Those that run in the test."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def looks(times: int) -> None:
    """Let the collector look so many times at seconds without any work."""
    running = asyncio.create_task(collect_when_quiet())
    await asyncio.sleep(collector.LOOK_S * (times + 0.5))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(("quiet_share", "collections"), [(1000.0, 1), (0.0, 0)])
async def test_an_idle_process_collects_once_and_a_busy_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
    full_collections: list[int],
    quiet_share: float,
    collections: int,
) -> None:
    """More collections of an idle one would only keep the machine awake."""
    monkeypatch.setattr(collector, "LOOK_S", 0.02)
    monkeypatch.setattr(collector, "QUIET_SHARE", quiet_share)

    await looks(5)

    assert len(full_collections) == collections


def test_new_garbage_is_collected_though_no_second_is_quiet() -> None:
    """A process that is always busy must not grow; what was there before is not looked at."""
    program = f"""
import gc
gc.disable()
from service.app.collector import begin_collecting
from tests.service.app.test_collector import Cycle
begin_collecting()
frozen = gc.get_freeze_count()
for _ in range({3 * NEW_OBJECTS}):
    Cycle()
alive = sum(isinstance(found, Cycle) for found in gc.get_objects())
print(frozen > 1_000, alive < {NEW_OBJECTS})
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.split() == ["True", "True"]


def test_no_collection_looks_through_all_that_a_large_answer_consists_of() -> None:
    """Nothing else runs meanwhile. Full collections are rare."""
    program = f"""
import gc
gc.disable()
from service.app.collector import begin_collecting
looked_at = []
def note(phase, about):
    if phase == "start" and about["generation"] < 2:
        looked_at.append(sum(len(gc.get_objects(n)) for n in range(about["generation"] + 1)))
begin_collecting()
gc.callbacks.append(note)
answer = [[] for _ in range({20 * NEW_OBJECTS})]
print(len(looked_at) > 10, max(looked_at) < {4 * NEW_OBJECTS})
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.split() == ["True", "True"]
