"""Which process delivers, and what many streams take."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from service.audit.streams.sending import Outgoing, Sender
from service.audit.streams.sinks import BATCH_ROWS
from service.store.lease import LeaseLost, LeaseTaken
from service.store.tables import Lease
from tests.budgets import budget
from tests.conftest import SettableClock
from tests.service.audit.conftest import start_worker
from tests.service.audit.streams.conftest import LOCAL
from tests.service.audit.streams.receivers import (
    Received,
    Reply,
    deliver_all,
    deliver_until,
    receiving,
    refused,
)
from tests.service.audit.streams.test_delivery import accept, all_ids


async def test_one_process_delivers_and_another_goes_on_after_it(streams):
    worker = start_worker(streams.services.settings, streams.clock)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await accept(streams, 5)
        await deliver_all(streams.services, stream_id)
        with pytest.raises(LeaseTaken):
            await worker.deliveries.deliver_due()
        await streams.services.deliveries.close()
        worker.deliveries._takes_at = 0.0
        sent = len(receiver.kept)
        await accept(streams, 5)
        await deliver_all(worker, stream_id)
        assert receiver.ids == await all_ids(streams)
        assert len(receiver.kept) == sent + 1
    await worker.close()


async def test_a_process_whose_lease_is_lost_ends_its_streams(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        async with streams.services.store.write() as work:
            await work.session.execute(
                update(Lease).values(holder="another", epoch=Lease.epoch + 1)
            )
        await accept(streams, 5)
        with pytest.raises(LeaseLost):
            await deliver_until(streams.services, lambda: False)
    assert streams.services.deliveries._couriers == {}


async def test_receivers_that_hang_or_fail_hold_little_memory(streams):
    """Their batches become shorter with each failure."""
    numbers = count()

    def answer(_: Received) -> Reply:
        return refused(503) if next(numbers) % 2 else Reply(keeps=False, is_cut=True)

    await accept(streams, 3_000)
    await streams.seal()
    async with receiving(answer) as receiver:
        for number in range(10):
            await streams.create(receiver.url, name=f"stream {number}")
        await deliver_until(streams.services, lambda: len(receiver.requests) > 150)
        largest = [len(request.entries) for request in receiver.requests[-10:]]
        receiver.requests.clear()
        tracemalloc.start()
        await deliver_until(streams.services, lambda: len(receiver.requests) > budget(50, 500))
        receiver.requests.clear()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await streams.services.deliveries.close()
    assert max(largest) == 1
    assert held < 20 * 2**20


async def test_lookups_that_hang_keep_no_other_waiting():
    released = asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host != "siem.example":
            await released.wait()
        return ["127.0.0.1"]

    async with receiving() as receiver:
        sender = Sender(LOCAL, lambda: pytest.fail("no TLS here"), SettableClock(), resolve)
        hanging = [
            asyncio.create_task(sender.send(Outgoing(f"http://h{n}.example/", b"")))
            for n in range(100)
        ]
        outcome = await sender.send(Outgoing(f"http://siem.example:{receiver.port}/", b"{}"))
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await sender.close()
    assert outcome.text == "200 ok"


async def test_streams_of_the_same_rows_read_them_once(streams):
    read = list[tuple[str, int]]()
    deliveries = streams.services.deliveries
    after = deliveries.reader.after

    async def counted(stream, seq, limit, make):
        read.append((stream.query, seq))
        return await after(stream, seq, limit, make)

    deliveries.reader = SimpleNamespace(after=counted)
    await accept(streams, 900)
    async with receiving() as receiver:
        ids = [await streams.create(receiver.url, name=f"stream {n}") for n in range(3)]
        other = await streams.create(receiver.url, name="blocked", query="decision=BLOCKED")
        for stream_id in (*ids, other):
            await deliver_all(streams.services, stream_id)
    assert read.count(("", 0)) == 1
    assert len(receiver.kept) == 4
    assert receiver.ids == await all_ids(streams)


async def test_a_stream_rests_while_others_want_the_processors(streams):
    """Rows are taken in as fast as without streams; a rest is two seconds at most.

    The last rows, which fill no batch, are waited for: no rest comes after them.
    """
    await accept(streams, BATCH_ROWS + 1)
    deliveries, waits = streams.services.deliveries, list[float]()
    waited, wait = count(), deliveries.wait

    async def rest(seconds: float) -> None:
        waits.append(seconds)
        await wait(seconds)

    deliveries.waited_s, deliveries.wait = (lambda: next(waited)), rest
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
    assert waits[0] == 2.0
    assert 2.0 not in waits[1:]
    assert receiver.ids == await all_ids(streams)
