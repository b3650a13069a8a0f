"""Rows that are past retention and not delivered: for how long they wait, and what is said."""

from service.audit.pruner import UNSENT_WAIT
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.pruning import DAY, add_past, always_on, left, prune
from tests.service.audit.streams.receivers import deliver_all, receiving
from tests.service.audit.streams.test_delivery import all_ids


async def past(streams) -> None:
    """Acme on the tier of seven days, with rows that are past it, and one of now."""
    await always_on(streams, "free")
    await add_past(streams, START - 12 * DAY)
    await streams.accept([sample_row(streams.clock())])


async def test_days_wait_seven_days_for_a_stream_that_lacks_their_rows(streams):
    await past(streams)
    rows = len(await left(streams))
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await prune(streams)
        assert len(await left(streams)) >= rows
        await deliver_all(streams.services, stream_id)
    await prune(streams)
    assert len(await left(streams)) < rows
    assert len(receiver.ids) > len(await all_ids(streams))


async def test_after_that_a_row_says_what_the_stream_lacks(streams):
    await past(streams)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url, after="start")
        streams.clock.advance(seconds=UNSENT_WAIT.total_seconds())
        await prune(streams)
        (gap,) = await streams.pages(event="stream_gap")
        await deliver_all(streams.services, stream_id)
    payload = gap["payload"]
    assert (payload["stream_id"], payload["after_id"]) == (stream_id, f"aud_{0:019}")
    assert gap["id"] in receiver.ids
    assert not [
        row
        for row in receiver.ids
        if payload["after_id"] < row < payload["to_id"] and row not in await all_ids(streams)
    ]


async def test_without_a_stream_that_lacks_them_days_go_at_once(streams):
    await past(streams)
    rows = len(await left(streams))
    async with receiving() as receiver:
        await streams.create(receiver.url, after="now")
        await prune(streams)
    assert len(await left(streams)) < rows
    assert not await streams.pages(event="stream_gap")
