"""What each kind of receiver is sent, and how it says that it refuses it."""

import asyncio
import base64
import gzip
import json
import re
import ssl
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pytest

from service.audit.streams.sending import Sender
from tests.nginx import make_certificates
from tests.service.audit.streams.conftest import LOCAL
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
from tests.service.audit.streams.test_delivery import accept, all_ids

TOKEN = "11111111-2222-3333-4444-555555555555"


async def wire_rows(streams) -> list[dict[str, Any]]:
    return list(reversed(await streams.pages(limit=1000)))


def objects(body: bytes) -> list[dict[str, Any]]:
    """JSON objects that follow one another."""
    return [json.loads(line) for line in body.splitlines()]


async def test_splunk_gets_events_with_its_token_and_their_time(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url, kind="splunk_hec", secret=TOKEN)
        await deliver_all(streams.services, stream_id)
    (request, *_) = receiver.kept
    assert request.headers["authorization"] == f"Splunk {TOKEN}"
    events = [event for each in receiver.kept for event in objects(each.body)]
    rows = await wire_rows(streams)
    assert [event["event"] for event in events] == rows
    times = [datetime.fromisoformat(row["created_at"]).timestamp() for row in rows]
    assert [event["time"] for event in events] == pytest.approx(times, abs=1e-6)
    assert {event["host"] for event in events} == {"localhost"}


async def test_otlp_gets_log_records(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url, kind="otlp", secret="Bearer x")
        await deliver_all(streams.services, stream_id)
    request = receiver.kept[0]
    assert request.headers["authorization"] == "Bearer x"
    (logs,) = json.loads(request.body)["resourceLogs"]
    (scope,) = logs["scopeLogs"]
    rows = await wire_rows(streams)
    first = scope["logRecords"][0]
    assert json.loads(first["body"]["stringValue"]) == rows[0]
    assert first["attributes"][0]["value"] == {"stringValue": rows[0]["id"]}
    at = datetime.fromisoformat(rows[0]["created_at"])
    assert int(first["timeUnixNano"]) // 10**9 == int(at.timestamp())
    assert int(first["timeUnixNano"]) // 1000 % 10**6 == at.microsecond


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("splunk_hec", b'{"text":"Incorrect index","code":7}'),
        ("otlp", b'{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"no"}}'),
        ("otlp", b'{"partialSuccess":{"rejectedLogRecords":1}}'),
    ],
)
async def test_a_200_that_refuses_a_row_parks_that_row_alone(streams, kind, body):
    await accept(streams, 8)
    await accept(streams, 1, package_name="poison")
    await accept(streams, 8)

    def answer(request: Received) -> Reply:
        return Reply(200, body, keeps=False) if b"poison" in request.body else ACCEPTED

    async with receiving(answer) as receiver:
        stream_id = await streams.create(receiver.url, kind=kind, secret=TOKEN)
        await deliver_all(streams.services, stream_id)
        stream = await stored(streams.services, stream_id)
    assert stream.parked == 1
    sent = b"".join(each.body for each in receiver.kept).decode()
    ids = set(re.findall(r"aud_\d{19}", sent))
    assert {*(await all_ids(streams))} - ids == {*stream.parked_since}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("splunk_hec", b'{"text":"Success","code":0}'),
        ("splunk_hec", b"\xff not JSON"),
        ("otlp", b'{"partialSuccess":{}}'),
        ("otlp", b'{"partialSuccess":{"rejectedLogRecords":0}}'),
        ("otlp", b"[]"),
        ("otlp", b""),
    ],
)
async def test_a_200_that_says_nothing_against_them_accepts_rows(streams, kind, body):
    async with receiving(lambda _: Reply(200, body)) as receiver:
        stream_id = await streams.create(receiver.url, kind=kind, secret=TOKEN)
        await deliver_all(streams.services, stream_id)
    assert (await stored(streams.services, stream_id)).parked == 0


async def test_syslog_is_framed_and_sent_over_tls(streams, tmp_path, monkeypatch):
    """RFC 5425: the length of each message in octets, then the message of RFC 5424."""
    certificates = make_certificates(tmp_path)
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(certificates.certificate, certificates.key)
    content = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content.extend(await reader.read(-1))
        writer.close()

    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificates.authority))

    sender = Sender(LOCAL, trusted, streams.clock)
    monkeypatch.setattr(streams.services.sender, "send", sender.send)
    await accept(streams, 1, package_name="grüße")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    stream_id = await streams.create(f"syslog+tls://127.0.0.1:{port}", kind="syslog")
    await deliver_all(streams.services, stream_id)
    server.close()
    entries, rest = [], bytes(content)
    while rest:
        length, _, rest = rest.partition(b" ")
        message, rest = rest[: int(length)].decode(), rest[int(length) :]
        head = re.fullmatch(
            r"<110>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) localhost countersign - (\S+) - (.*)",
            message,
        )
        assert head, message
        entries.append(json.loads(head[3]))
        assert (head[1], head[2]) == (entries[-1]["created_at"], entries[-1]["event"])
    assert entries == await wire_rows(streams)


async def test_a_bucket_gets_compressed_objects_named_by_their_rows(streams):
    async with receiving() as receiver:
        url = receiver.url.replace("/rows", "/bucket/audit/")
        stream_id = await streams.create(url, kind="s3", secret="AKIA0:secret/key")
        await deliver_all(streams.services, stream_id)
    rows = await wire_rows(streams)
    request = receiver.kept[0]
    acme = streams.world.acme.id
    name = re.fullmatch(
        rf"/bucket/audit/org={acme}/dt=([\d-]+)/seq=(\d{{19}})-(\d{{19}})\.ndjson\.gz",
        unquote(request.path),
    )
    assert name
    entries = objects(gzip.decompress(request.body))
    assert entries == rows[: len(entries)]
    assert name[1] == rows[0]["created_at"][:10]
    assert (f"aud_{name[2]}", f"aud_{name[3]}") == (entries[0]["id"], entries[-1]["id"])
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA0/")


SECRETS = {"splunk_hec": TOKEN, "otlp": f"Bearer {TOKEN}", "s3": f"AKIA0:{TOKEN}"}


@pytest.mark.parametrize("kind", ["webhook", *SECRETS])
async def test_a_secret_is_in_no_row_answer_log_or_table(streams, kind, capsys):
    """A receiver that repeats it, refuses all and is suspended for it included."""

    def answer(request: Received) -> Reply:
        return refused(410, f"{TOKEN} {json.dumps(request.headers)}".encode())

    async with receiving(answer) as receiver:
        given = {"secret": SECRETS[kind]} if kind in SECRETS else {}
        created = await streams.call(
            "POST", name="x", kind=kind, url=receiver.url, after="start", **given
        )
        secret = created["secret"] or TOKEN
        assert (created["secret"] is None) == (kind in SECRETS)
        await streams.call("POST", f"/{created['id']}/test")
        await deliver_all(streams.services, created["id"])
        stream = await stored(streams.services, created["id"])
    listed = json.dumps(await streams.call("GET"))
    rows = json.dumps(await streams.pages(limit=1000))
    kept = repr({name: value for name, value in vars(stream).items() if name[0] != "_"})
    assert stream.state == "suspended"
    shown = listed + rows + kept + "".join(capsys.readouterr())
    assert (kind == "webhook") or TOKEN not in shown
    assert secret not in shown
    assert base64.b64encode(secret.encode()).decode() not in kept


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        *(
            ({"url": url}, "url")
            for url in ("ftp://x.example/", "https://", "https://a@x.example/")
        ),
        *(({"url": url}, "url") for url in ("https://x.example/?k=1", "https://x.example/#k", "x")),
        *(({"url": url}, "url") for url in ("https://x.example:0/", "https://x.example:99999/")),
        *(
            ({"url": url}, "url")
            for url in ("https://[::1/", "https://x.example/ü", "https://x y/")
        ),
        ({"url": "https://x.example/\r\nx: y"}, "url"),
        ({"kind": "syslog"}, "url"),
        ({"kind": "kafka"}, "kind"),
        ({"kind": "splunk_hec"}, "secret"),
        ({"kind": "s3", "secret": "key"}, "secret"),
        ({"kind": "otlp", "secret": "a\r\nb: c"}, "secret"),
        ({"kind": "otlp", "secret": "ü"}, "secret"),
        ({"after": "aud_1"}, "after"),
        ({"after": f"aud_{10**6:019}"}, "after"),
        ({"query": "colour=red"}, "query"),
        ({"query": "x"}, "query"),
        ({"query": "event="}, "query"),
        ({"name": ""}, "name"),
        ({"name": " x"}, "name"),
        ({"other": "x"}, "other"),
    ],
)
async def test_what_is_wrong_with_a_stream_is_named(streams, wrong, field):
    body = {"name": "SIEM", "kind": "webhook", "url": "https://siem.example/rows"}
    answer = await streams.send("POST", **{**body, **wrong})
    assert answer.status_code == 400
    assert field in (await answer.get_json())["error"]


async def test_a_name_is_taken_once_and_there_is_a_limit(streams, monkeypatch):
    monkeypatch.setattr("service.audit.streams.streams_api.STREAMS_MAX", 2)
    body = {"kind": "webhook", "url": "https://127.0.0.1/"}
    answers = [await streams.send("POST", name=name, **body) for name in ("a", "a", "b", "c")]
    assert [answer.status_code for answer in answers] == [201, 409, 201, 409]


async def test_the_streams_of_another_organisation_are_not_there(streams):
    stream_id = await streams.create("https://127.0.0.1/")
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/test")):
        body = {"state": "paused"} if method == "PUT" else {}
        answer = await streams.send(method, f"/{stream_id}{path}", slug="other", **body)
        assert answer.status_code == 404
    assert (await streams.call("GET", slug="other"))["streams"] == []


async def test_a_test_shows_what_the_receiver_answers_and_moves_nothing(streams):
    async with receiving(lambda _: refused(403, b"no such token")) as receiver:
        stream_id = await streams.create(receiver.url)
        tested = await streams.call("POST", f"/{stream_id}/test")
        assert tested == {"accepted": False, "answer": "403 no such token"}
        receiver.answer = lambda _: ACCEPTED
        assert (await streams.call("POST", f"/{stream_id}/test"))["accepted"]
    assert [each.entries[0]["event"] for each in receiver.requests] == ["stream_test"] * 2
    assert (await stored(streams.services, stream_id)).cursor == 0


async def test_with_another_secret_key_a_stream_says_so_until_its_secret_is_set_again(
    streams, monkeypatch
):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        monkeypatch.setattr("service.core.secrets.derive_key", lambda key, purpose: bytes(32))
        while (stream := await stored(streams.services, stream_id)).answer is None:
            await streams.services.deliveries.deliver_due()
        assert "SECRET_KEY has changed" in stream.answer
        assert receiver.requests == []
        # The former secret, which would sign for another day, cannot be read.
        await streams.call("PUT", f"/{stream_id}", secret="")
        assert (await streams.call("POST", f"/{stream_id}/test"))["accepted"]
    (signature,) = receiver.requests[0].headers["webhook-signature"].split()
    assert signature.startswith("v1,")


async def test_how_far_behind_a_stream_is_is_listed_and_measured(streams):
    async with receiving(lambda _: refused(503)) as receiver:
        stream_id = await streams.create(receiver.url)
        await accept(streams, 10)
        await deliver_until(streams.services, lambda: len(receiver.requests) > 3)
        (listed,) = (await streams.call("GET"))["streams"]
        metrics = streams.services.metrics.exposition().decode()
    assert listed["lag_rows"] == len(await all_ids(streams))
    assert listed["lag_s"] >= 3
    assert f'countersign_stream_lag_rows{{stream="{stream_id}"}} {listed["lag_rows"]}' in metrics
    lag = re.search(rf'countersign_stream_lag_seconds{{stream="{stream_id}"}} ([\d.]+)', metrics)
    assert lag
    assert float(lag[1]) >= 3
