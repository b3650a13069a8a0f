"""What arrives at a receiver, however it behaves."""

import asyncio
import base64
import hashlib
import hmac
import random
from datetime import timedelta
from typing import Any

import pytest

from analytics.model.schema import audit_id
from service.audit.streams.delivery import PARKED_MAX
from service.audit.streams.sinks import BATCH_ROWS
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.service.audit.streams.receivers import (
    ACCEPTED,
    Received,
    Reply,
    deliver_all,
    deliver_until,
    receiving,
    refused,
    stored,
)

ROUNDS = 20
BUSY = refused(503)
LOST = Reply(is_cut=True)
"""It has the rows, and the answer does not arrive."""


async def accept(streams, count: int, **values: Any) -> None:
    await streams.accept([sample_row(streams.clock(), **values) for _ in range(count)])


async def all_ids(streams) -> list[str]:
    return [entry["id"] for entry in reversed(await streams.pages(limit=1000))]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


async def test_rows_arrive_in_order_as_the_api_shows_them(streams):
    await accept(streams, 30)
    await streams.seal()
    await accept(streams, 3)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
    assert receiver.rows == list(reversed(await streams.pages(limit=1000)))


async def test_batches_are_signed_as_standard_webhooks_are(streams):
    """https://github.com/standard-webhooks/standard-webhooks, its scheme v1."""
    async with receiving() as receiver:
        created = await streams.call(
            "POST", name="SIEM", kind="webhook", url=receiver.url, after="start"
        )
        await deliver_all(streams.services, created["id"])
    request = receiver.requests[0]
    key = base64.b64decode(created["secret"].removeprefix("whsec_"))
    name, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    signed = f"{name}.{at}.".encode() + request.body
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert request.headers["webhook-signature"] == f"v1,{digest}"
    assert int(at) == int(streams.clock().timestamp())


async def test_both_secrets_sign_for_a_day_after_a_rotation(streams):
    async with receiving() as receiver:
        created = await streams.call("POST", name="SIEM", kind="webhook", url=receiver.url)
        changed = await streams.call("PUT", f"/{created['id']}", secret="")
        assert changed["secret"] != created["secret"]
        await deliver_all(streams.services, created["id"])
        streams.clock.advance(days=1)
        await accept(streams, 1)
        await deliver_all(streams.services, created["id"])
    first, last = receiver.requests[0], receiver.requests[-1]
    assert [len(each.headers["webhook-signature"].split()) for each in (first, last)] == [2, 1]


async def test_filters_apply_and_rows_that_do_not_match_are_passed(streams):
    await accept(streams, 5)
    await accept(streams, 2, package_name="right-pad")
    await accept(streams, 5)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url, query="package=right-pad")
        await deliver_all(streams.services, stream_id)
        assert [row["packageName"] for row in receiver.rows] == ["right-pad"] * 2
        cursor = (await stored(streams.services, stream_id)).cursor
        assert audit_id(cursor) == (await all_ids(streams))[-1]


async def test_rows_of_other_organisations_stay(streams):
    await streams.accept([sample_row(streams.clock())], org=streams.world.other)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        await deliver_until(streams.services, lambda: receiver.requests)
    assert {row["tenant_id"] for row in receiver.rows} == {streams.world.acme.id}


async def test_a_stream_begins_now_after_a_row_or_at_the_start(streams):
    await accept(streams, 3)
    ids = await all_ids(streams)
    async with receiving() as now, receiving() as later, receiving() as start:
        for receiver, after in ((now, "now"), (later, ids[-2]), (start, "start")):
            await deliver_all(streams.services, await streams.create(receiver.url, after=after))
    assert start.ids[: len(ids)] == ids
    assert later.ids[:1] == ids[-1:]
    assert not set(now.ids) & set(ids)


async def test_a_paused_stream_waits_and_is_resumed_where_it_was(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        await streams.call("PUT", f"/{stream_id}", state="paused")
        sent = len(receiver.requests)
        await accept(streams, 3)
        for _ in range(20):
            await streams.services.deliveries.deliver_due()
        assert len(receiver.requests) == sent
        await streams.call("PUT", f"/{stream_id}", state="active")
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)
        assert len(receiver.kept) == len(receiver.requests)


async def test_rows_are_sent_again_from_a_row_on(streams):
    await accept(streams, 9)
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        receiver.kept.clear()
        ids = await all_ids(streams)
        await streams.call("PUT", f"/{stream_id}", after=ids[3])
        await deliver_all(streams.services, stream_id)
    assert receiver.ids[: len(ids) - 4] == ids[4:]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again_with_longer_waits(streams, status):
    answers = iter([refused(status)] * 12)
    async with receiving(lambda _: next(answers, ACCEPTED)) as receiver:
        began_at = streams.clock()
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)
    waited = streams.clock() - began_at
    assert seconds(sum(2**n for n in range(9)) / 2) <= waited <= seconds(4 * 300 + 512)


async def test_retry_after_is_heeded(streams):
    answers = iter([refused(429, retry_after="1800")])
    async with receiving(lambda _: next(answers, ACCEPTED)) as receiver:
        began_at = streams.clock()
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
    assert seconds(1800) <= streams.clock() - began_at < seconds(1900)
    assert len(receiver.requests) >= 2


async def test_a_receiver_that_is_down_for_an_hour_gets_all_rows(streams):
    async with receiving() as receiver:
        up_at = streams.clock() + timedelta(hours=1)
        receiver.answer = lambda _: ACCEPTED if streams.clock() >= up_at else BUSY
        stream_id = await streams.create(receiver.url)
        for _ in range(5):
            await accept(streams, 300)
            await streams.seal()
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)


async def test_a_batch_that_is_too_large_is_halved(streams):
    def answer(request: Received) -> Reply:
        return refused(413) if len(request.entries) > 90 else ACCEPTED

    await accept(streams, 700)
    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)
        assert (await stored(streams.services, stream_id)).parked == 0


async def test_only_rows_that_the_receiver_refuses_are_parked(streams):
    await accept(streams, 40)
    await accept(streams, 1, package_name="poison")
    await accept(streams, 40)

    def answer(request: Received) -> Reply:
        return refused(400) if b"poison" in request.body else ACCEPTED

    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        ids = await all_ids(streams)
        stream = await stored(streams.services, stream_id)
    assert set(ids) - set(receiver.ids) == {*stream.parked_since}
    assert receiver.ids == [row_id for row_id in ids if row_id in receiver.ids]
    assert (stream.parked, len(stream.parked_since), stream.state) == (1, 1, "active")
    assert (await streams.page(package="poison"))["entries"][0]["id"] == stream.parked_since[0]


async def test_a_receiver_that_refuses_every_row_loses_none(streams):
    """As one whose index has another name: what it refused is sent once it is set up."""
    await accept(streams, 50)
    async with receiving(lambda _: refused(400, b"no such index")) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        stream = await stored(streams.services, stream_id)
        assert (stream.state, stream.cursor, stream.parked) == ("suspended", 0, 0)
        assert stream.answer == "400 no such index"
        assert sum(len(each.entries) == 1 for each in receiver.requests) == PARKED_MAX
        receiver.answer = lambda _: ACCEPTED
        await streams.call("PUT", f"/{stream_id}", state="active")
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)


@sample(2)
@pytest.mark.parametrize("status", [401, 403, 404, 302])
async def test_a_stream_that_is_denied_for_a_day_is_suspended_and_recorded(streams, status):
    async with receiving(lambda _: refused(status, b"denied")) as receiver:
        began_at = streams.clock()
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        waited = streams.clock() - began_at
    assert timedelta(days=1) <= waited < timedelta(days=1, minutes=6)
    (row,) = await streams.pages(
        event="stream_changed", subject=stream_id, actor="system:maintenance"
    )
    assert row["payload"]["change"] == "suspended"
    assert row["payload"]["detail"] == f"{status} denied"


async def test_a_receiver_that_is_gone_is_sent_no_more(streams):
    async with receiving(lambda _: refused(410)) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        assert (await stored(streams.services, stream_id)).state == "suspended"
        assert len(receiver.requests) == 1


async def test_redirects_are_not_followed(streams):
    async with receiving() as target:
        moved = refused(307, location=target.url)
        async with receiving(lambda _: moved) as receiver:
            stream_id = await streams.create(receiver.url)
            await deliver_until(streams.services, lambda: len(receiver.requests) > 2)
            assert (await stored(streams.services, stream_id)).answer == "307 no"
    assert target.requests == []


async def test_after_twenty_rounds_with_a_bad_receiver_all_rows_are_there(streams):
    """And its records agree with what it holds."""
    chance = random.Random(7)
    faults = [ACCEPTED, ACCEPTED, BUSY, LOST, refused(429, retry_after="2"), refused(413), LOST]

    def answer(request: Received) -> Reply:
        reply = chance.choice(faults)
        return ACCEPTED if reply.status == 413 and len(request.entries) == 1 else reply

    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url)
        for number in range(ROUNDS):
            await accept(streams, chance.randint(1, 60))
            if number % 3 == 0:
                await streams.seal()
            await deliver_all(streams.services, stream_id)
            streams.clock.advance(minutes=20)
        assert receiver.ids == await all_ids(streams)
        check_records(receiver)


def check_records(receiver) -> None:
    """Each record says of its rows what a receiver finds: how many, and the digest of their ids."""
    assert receiver.records
    for record in receiver.records:
        payload = record
        ids = [
            row_id for row_id in receiver.ids if payload["after_id"] < row_id <= payload["to_id"]
        ]
        assert len(ids) == payload["rows"]
        assert hashlib.sha256("\n".join(ids).encode()).hexdigest() == payload["ids_sha256"]


async def test_a_record_shows_what_a_lying_receiver_has_lost(streams):
    """It answers 200, and stores nothing of one batch."""
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await accept(streams, 5)
        receiver.answer = lambda _: Reply(keeps=False)
        await deliver_all(streams.services, stream_id)
        receiver.answer = lambda _: ACCEPTED
        streams.clock.advance(hours=1)
        await deliver_until(streams.services, lambda: receiver.records)
    (record,) = receiver.records
    assert record["rows"] == len(await all_ids(streams))
    assert receiver.ids == []


async def test_records_come_with_each_hour_and_follow_each_other(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        for hour in range(3):
            await accept(streams, 2)
            await deliver_all(streams.services, stream_id)
            streams.clock.advance(hours=1)
            await accept(streams, 1)
            await deliver_until(streams.services, lambda hour=hour: len(receiver.records) > hour)
        check_records(receiver)
    spans = [(record["after_id"], record["to_id"]) for record in receiver.records]
    assert [after for after, _ in spans[1:]] == [to for _, to in spans[:-1]]


async def test_parked_rows_are_named_in_the_record(streams):
    await accept(streams, 3, package_name="poison")

    def answer(request: Received) -> Reply:
        return refused(400) if b"poison" in request.body else ACCEPTED

    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        streams.clock.advance(hours=1)
        await deliver_until(streams.services, lambda: receiver.records)
        ids = await all_ids(streams)
        check_records(receiver)
    assert set(receiver.records[0]["parked_ids"]) == set(ids) - set(receiver.ids)
    assert len(receiver.records[0]["parked_ids"]) == 3


async def test_a_dead_receiver_delays_no_other(streams):
    """One hangs, one refuses; a third has all rows meanwhile, and so has another organisation's."""
    async with (
        receiving(lambda _: Reply(keeps=False, hangs=True)) as hanging,
        receiving(lambda _: BUSY) as busy,
        receiving() as healthy,
        receiving() as elsewhere,
    ):
        for receiver in (hanging, busy):
            await streams.create(receiver.url)
        stream_id = await streams.create(healthy.url)
        other_id = await streams.create(elsewhere.url, slug="other")
        await accept(streams, 2 * BATCH_ROWS)
        await deliver_all(streams.services, stream_id)
        await deliver_all(streams.services, other_id)
        assert healthy.ids == await all_ids(streams)
        assert len(hanging.requests) == 1
        assert busy.requests
        assert elsewhere.ids
        await streams.services.deliveries.close()


async def test_a_receiver_that_hangs_is_given_up(streams, monkeypatch):
    monkeypatch.setattr("service.audit.streams.sending.SEND_S", 0.01)
    replies = iter([Reply(keeps=False, hangs=True)])
    async with receiving(lambda _: next(replies, ACCEPTED)) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_until(streams.services, lambda: receiver.requests)
        monkeypatch.setattr("service.audit.streams.sending.SEND_S", 30)
        await deliver_all(streams.services, stream_id)
        assert receiver.ids == await all_ids(streams)


async def test_a_connection_that_is_refused_is_tried_again(streams):
    async with receiving() as receiver:
        url = receiver.url
    stream_id = await streams.create(url)
    for _ in range(20):
        await streams.services.deliveries.deliver_due()
        await asyncio.sleep(0.01)
    stream = await stored(streams.services, stream_id)
    assert stream.answer is not None
    assert "ConnectError" in stream.answer
    assert (stream.state, stream.cursor) == ("active", 0)


async def test_a_receiver_that_refuses_every_row_of_a_filter_loses_none(streams, monkeypatch):
    """Rows that the stream does not have lie between those that are refused."""
    for name in ("BATCH_ROWS", "CHUNK_ROWS"):  # so that some chunks have none of its rows
        monkeypatch.setattr(f"service.audit.streams.delivery.{name}", 2)
    for _ in range(PARKED_MAX + 5):
        await accept(streams, 1, package_name="right-pad")
        await accept(streams, 7)
    async with receiving(lambda _: refused(400)) as receiver:
        stream_id = await streams.create(receiver.url, query="package=right-pad")
        while (await stored(streams.services, stream_id)).state == "active":
            await streams.services.deliveries.deliver_due()
            await asyncio.sleep(0.001)
        receiver.answer = lambda _: ACCEPTED
        await streams.call("PUT", f"/{stream_id}", state="active")
        await deliver_all(streams.services, stream_id)
    assert len(receiver.ids) == PARKED_MAX + 5
    assert (await stored(streams.services, stream_id)).parked == 0


@pytest.mark.parametrize(("limit", "field"), [("RECORD_ROWS", "rows"), ("RECORD_PARKED", "parked")])
async def test_records_also_come_after_many_rows(streams, monkeypatch, limit, field):
    monkeypatch.setattr(f"service.audit.streams.delivery.{limit}", 5)
    await accept(streams, 6, package_name="poison" if field == "parked" else "left-pad")

    def answer(request: Received) -> Reply:
        return refused(400) if b"poison" in request.body else ACCEPTED

    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url)
        await deliver_all(streams.services, stream_id)
        await deliver_until(streams.services, lambda: receiver.records)
        check_records(receiver)
