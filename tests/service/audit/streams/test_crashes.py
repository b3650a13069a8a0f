"""`kill -9` while rows are sent: each arrives at least once, in order."""

import pytest

from service.audit.streams.sinks import BATCH_ROWS
from tests.budgets import budget, sample
from tests.crashes import kill_process
from tests.service.audit.streams.receivers import deliver_all, receiving
from tests.service.audit.streams.test_delivery import accept, all_ids, check_records

STEPS = (
    ("send", 1, "the first batch was not sent"),
    ("send", 2, "the first was accepted, and no cursor is stored"),
    ("sent", 1, "accepted, and nothing is known of it"),
    ("sent", 3, "in the middle"),
    ("UPDATE streams", 1, "before the cursor is stored"),
    ("COMMIT", 2, "before the cursor's commit"),
    ("END", 1, "all is delivered"),
)


@sample(3)
@pytest.mark.parametrize(("step", "number", "state"), STEPS)
async def test_a_killed_process_loses_no_row(streams, step, number, state):
    await accept(streams, 2 * BATCH_ROWS)
    await streams.seal()
    await accept(streams, BATCH_ROWS)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        settings = streams.services.settings
        await kill_process(settings, streams.clock(), "stream", step, number)
        sent = len(receiver.kept)
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams), state
        assert len(receiver.kept) > sent or step == "END"


async def test_records_agree_after_processes_were_killed_at_each_step(streams):
    """Killed once at each step, one after the other, with new rows before each."""
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        for step, number, _ in STEPS[1 : budget(3, 6)]:
            await accept(streams, 4 * BATCH_ROWS)
            await kill_process(streams.services.settings, streams.clock(), "stream", step, number)
            streams.clock.advance(hours=1)
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)
        check_records(receiver)
