"""Rows arrive whole and in order at receivers that were not written here."""

import asyncio
import gzip
import json
import random
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from analytics.model.envelopes import ENVELOPES
from service.audit.streams.rows import lines_of
from service.core.settings import REPOSITORY
from tests.analytics.samples import TENANT, sample_row, table_of
from tests.budgets import only_full
from tests.nginx import make_certificates
from tests.receivers.programs import (
    LIBRARIES,
    PYTHON,
    free_port,
    node_modules,
    require,
    rotel,
    rsyslogd,
    running,
    tenzir,
    until_it_has,
    until_listening,
)
from tests.seaweedfs import ACCESS_KEY, SECRET_KEY
from tests.service.audit.streams.conftest import Streams
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
from tests.service.audit.streams.test_delivery import BUSY, LOST, ROUNDS, accept, all_ids

pytestmark = only_full
ROWS = 1_500
PAGE = REPOSITORY / "docs" / "streams.md"
TOKEN = "11111111-2222-3333-4444-555555555555"


async def fill(streams: Streams) -> None:
    """Some of each kind: sealed, in the journal, with text that needs care."""
    await accept(streams, ROWS)
    await streams.seal()
    await accept(streams, 3, package_name="\"<&\\n'é\u2028😀 {}[]")


async def wire_rows(streams: Streams) -> list[dict[str, Any]]:
    return list(reversed(await streams.pages(limit=1000)))


async def deliver(streams: Streams, url: str, kind: str, secret: str = "") -> list[dict[str, Any]]:
    """The rows, once the receiver has accepted all."""
    stream_id = await streams.create(url, kind=kind, secret=secret)
    await deliver_all(streams.services, stream_id)
    stream = await stored(streams.services, stream_id)
    assert (stream.state, stream.parked) == ("active", 0), stream.answer
    return await wire_rows(streams)


TENZIR = {
    "webhook": ("https", "/rows", ""),
    "splunk_hec": ("https", "/services/collector/event", TOKEN),
    "otlp": ("https", "/v1/logs", ""),
    "syslog": ("syslog+tls", "", ""),
}


def recipes() -> dict[str, str]:
    """The lines of the page by which Tenzir takes a stream, by its kind."""
    (block,) = re.findall(r"```\n(accept_http.*?)```", PAGE.read_text(), re.DOTALL)
    return dict(zip(TENZIR, block.splitlines(), strict=True))


@pytest.mark.parametrize("kind", TENZIR)
async def test_tenzir_has_all_rows_in_order(streams, tmp_path, kind):
    """As docs/streams.md has it, over TLS."""
    await fill(streams)
    certificates = make_certificates(tmp_path)
    trust_of(streams, certificates.authority)
    scheme, path, secret = TENZIR[kind]
    port, found, log = free_port(), tmp_path / "found.ndjson", tmp_path / "log"
    source = re.sub(r'"0\.0\.0\.0:\d+"', f'"127.0.0.1:{port}"', recipes()[kind])
    for name, value in (("cert.pem", certificates.certificate), ("key.pem", certificates.key)):
        source = source.replace(name, str(value))
    query = f'{source.replace("…", TOKEN)} | to_file "{found}" {{ write_ndjson }}'
    with running([tenzir(), query], log):
        await until_listening(port, log)
        rows = await deliver(streams, f"{scheme}://127.0.0.1:{port}{path}", kind, secret)
        lines = [json.loads(line) for line in await until_it_has(found, len(rows))]
    if kind == "syslog":
        sent = [message_of(line) for line in lines]
        assert sorted(row["id"] for row in sent) == [row["id"] for row in rows]
        return
    if kind == "otlp":
        assert [json.loads(line["body"]["string_value"]) for line in lines] == rows
        assert [line["time"] for line in lines] == [row["created_at"] for row in rows]
        return
    held = [line.get("event", line) if kind == "splunk_hec" else line for line in lines]
    assert [row["id"] for row in held] == [row["id"] for row in rows]
    assert [row["packageName"] for row in held] == [row["packageName"] for row in rows]


async def test_the_query_for_tenzir_gives_the_digest_of_a_record(streams, tmp_path):
    """Over rows with duplicates."""
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        await accept(streams, 50)
        await deliver_all(streams.services, stream_id)
        streams.clock.advance(hours=1)
        await deliver_until(streams.services, lambda: receiver.records)
    (record,) = receiver.records
    content = b"".join(request.body for request in receiver.kept)
    (tmp_path / "rows.ndjson").write_bytes(content + content)
    assert await digest_in_tenzir(record, tmp_path) == (record["rows"], record["ids_sha256"])


async def test_tenzir_agrees_with_each_record_after_twenty_bad_rounds(streams, tmp_path):
    """On the way to it batches are refused, and its answers to others are lost or errors."""
    chance = random.Random(11)
    port, found, log = free_port(), tmp_path / "rows.ndjson", tmp_path / "log"
    query = (
        f'accept_http "127.0.0.1:{port}" {{ read_ndjson }} | to_file "{found}" {{ write_ndjson }}'
    )
    faults = [ACCEPTED, ACCEPTED, LOST, BUSY, refused(429, retry_after="2"), refused(413)]
    passed_on = 0

    def answer(request: Received) -> Reply:
        nonlocal passed_on
        reply = chance.choice(faults)
        if reply.status == 413 and len(request.entries) == 1:
            reply = ACCEPTED
        if reply.keeps:  # also if no answer tells the sender of it
            taken = httpx2.post(f"http://127.0.0.1:{port}/rows", content=request.body)
            assert taken.is_success
            passed_on += len(request.entries)
        return reply

    with running([tenzir(), query], log):
        await until_listening(port, log)
        async with receiving(answer) as receiver:
            stream_id = await streams.create(receiver.url)
            for number in range(ROUNDS):
                await accept(streams, chance.randint(1, 60))
                if number % 3 == 0:
                    await streams.seal()
                await deliver_all(streams.services, stream_id)
                streams.clock.advance(minutes=20)
            await deliver_until(streams.services, lambda: receiver.records)
        await until_it_has(found, passed_on)
    assert len(receiver.records) >= ROUNDS // 3 - 1
    for record in receiver.records:
        assert await digest_in_tenzir(record, tmp_path) == (record["rows"], record["ids_sha256"])


async def digest_in_tenzir(record: dict[str, Any], folder: Path) -> tuple[int, str]:
    """What the query of docs/streams.md finds in rows.ndjson of `folder` for a record."""
    (query,) = re.findall(r"```tql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    first, last = re.findall(r'"(aud_\d{19})"', query)
    query = query.replace(first, record["after_id"]).replace(last, record["to_id"])
    command = [tenzir(), f"{query}\nwrite_ndjson"]
    ran = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, text=True
    )
    found = json.loads(ran.stdout)
    return found["held"], found["ids_sha256"]


async def test_tenzir_has_the_types_of_every_event_in_ocsf(tmp_path):
    """Whatever differs from the schema of OCSF is a warning of `ocsf_cast`."""
    rows = [
        sample_row(event=event, decision=envelope.decision, payload='{"member_id": "m"}')
        for event, envelope in ENVELOPES.items()
    ]
    lines = lines_of(TENANT, "ocsf", table_of(rows))
    (tmp_path / "rows.ndjson").write_bytes(b"".join(line.text + b"\n" for line in lines))
    (recipe,) = re.findall(r"```tenzir\n(.*?)```", PAGE.read_text(), re.DOTALL)
    source = f'from_file "{tmp_path}/rows.ndjson" {{ read_ndjson }}'
    command = [tenzir(), f"{source}\n{recipe}\nwrite_ndjson"]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert ran.stderr == ""
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["metadata"]["event_code"] for each in events] == list(ENVELOPES)
    assert {each["time"] for each in events} == {each["time_dt"] for each in events}


async def test_tenzir_refuses_another_token(streams, tmp_path):
    port, log = free_port(), tmp_path / "log"
    query = f'accept_splunk "127.0.0.1:{port}", hec_token="{TOKEN}" | discard'
    with running([tenzir(), query], log):
        await until_listening(port, log)
        url = f"http://127.0.0.1:{port}/services/collector/event"
        stream_id = await streams.create(url, kind="splunk_hec", secret="another")
        tested = await streams.call("POST", f"/{stream_id}/test")
    assert not tested["accepted"]
    assert tested["answer"][:3] in {"401", "403"}


def trust_of(streams: Streams, authority: Path) -> None:
    """Have streams trust the certificates of this authority."""

    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(authority))

    streams.services.sender._tls = trusted


def message_of(line: dict[str, Any]) -> dict[str, Any]:
    message = line.get("message") or line.get("content")
    return json.loads(message) if isinstance(message, str) else message


async def test_rsyslog_has_all_messages_over_tls(streams, tmp_path):
    await fill(streams)
    certificates = make_certificates(tmp_path)
    trust_of(streams, certificates.authority)
    port, found, log = free_port(), tmp_path / "found", tmp_path / "log"
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(
        f'''global(
  DefaultNetstreamDriver="ossl" workDirectory="{tmp_path}" maxMessageSize="64k"
  DefaultNetstreamDriverCAFile="{certificates.authority}"
  DefaultNetstreamDriverCertFile="{certificates.certificate}"
  DefaultNetstreamDriverKeyFile="{certificates.key}"
)
module(load="imtcp" StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="anon")
input(type="imtcp" port="{port}" address="127.0.0.1")
template(name="raw" type="string" string="%msg%\\n")
action(type="omfile" file="{found}" template="raw")
'''
    )
    command = [rsyslogd(), "-n", "-f", configuration, "-i", tmp_path / "pid"]
    modules = LIBRARIES / "rsyslog"
    with running([*command, "-M", modules], log, LD_LIBRARY_PATH=str(LIBRARIES)):
        await until_listening(port, log)
        rows = await deliver(streams, f"syslog+tls://127.0.0.1:{port}", "syslog")
        lines = await until_it_has(found, len(rows))
    ids = [json.loads(line)["id"] for line in lines]
    assert ids == [row["id"] for row in rows]


@pytest.mark.parametrize("scheme", ["relp", "relp+tls"])
async def test_rsyslog_acknowledges_all_messages_of_relp(streams, tmp_path, scheme):
    """As docs/streams.md has it."""
    await fill(streams)
    certificates = make_certificates(tmp_path)
    trust_of(streams, certificates.authority)
    port, found, log = free_port(), tmp_path / "found", tmp_path / "log"
    require(LIBRARIES / "rsyslog" / "imrelp.so")
    (recipe,) = re.findall(r"```\n(module\(load=\"imrelp\".*?)```", PAGE.read_text(), re.DOTALL)
    for written, value in (
        ("2514", str(port)),
        ("cert.pem", str(certificates.certificate)),
        ("key.pem", str(certificates.key)),
        *([('tls="on"', 'tls="off"')] if scheme == "relp" else []),
    ):
        recipe = recipe.replace(written, value)
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(
        f'''global(workDirectory="{tmp_path}" maxMessageSize="64k")
{recipe}
template(name="raw" type="string" string="%msg%\\n")
action(type="omfile" file="{found}" template="raw")
'''
    )
    command = [rsyslogd(), "-n", "-f", configuration, "-i", tmp_path / "pid"]
    modules = LIBRARIES / "rsyslog"
    with running([*command, "-M", modules], log, LD_LIBRARY_PATH=str(LIBRARIES)):
        await until_listening(port, log)
        rows = await deliver(streams, f"{scheme}://127.0.0.1:{port}", "syslog")
        lines = await until_it_has(found, len(rows))
    assert [json.loads(line)["id"] for line in lines] == [row["id"] for row in rows]


PARSE = """
import sys
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
request = Parse(sys.stdin.buffer.read(), ExportLogsServiceRequest())
records = request.resource_logs[0].scope_logs[0].log_records
print(len(records), records[0].time_unix_nano, records[0].event_name)
"""


async def test_otlp_has_no_field_that_opentelemetry_does_not_know(streams):
    """Its own definitions parse the JSON, and refuse other names and types."""
    found = PYTHON.glob("lib/python3*/site-packages/opentelemetry/proto")
    require(next(found, PYTHON / "opentelemetry-proto"))
    await fill(streams)
    async with receiving() as receiver:
        rows = await deliver(streams, receiver.url, "otlp")
    ran = await asyncio.to_thread(
        subprocess.run,
        [PYTHON / "bin" / "python", "-c", PARSE],
        input=receiver.kept[0].body,
        capture_output=True,
    )
    assert ran.stderr == b""
    count, at, event = ran.stdout.decode().split()
    assert int(count) == receiver.kept[0].body.count(b"log.record.uid")
    assert (event, at[-3:]) == (rows[0]["event"], "000")


async def test_rotel_has_all_records(streams, tmp_path):
    await fill(streams)
    port, log = free_port(), tmp_path / "log"
    options = ["--otlp-http-endpoint", f"127.0.0.1:{port}"]
    options += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--exporter", "blackhole"]
    command = [rotel(), "start", *options, "--debug-log", "logs"]
    with running([*command, "--debug-log-verbosity", "detailed"], log):
        await until_listening(port, log)
        rows = await deliver(streams, f"http://127.0.0.1:{port}/v1/logs", "otlp")
    found = re.findall(r"log\.record\.uid: Str\((aud_\d{19})\)", log.read_text())
    assert found == [row["id"] for row in rows]


async def test_a_bucket_of_seaweedfs_has_all_rows(streams, bucket):
    await fill(streams)
    url = f"{bucket.server.endpoint}/{bucket.url.removeprefix('s3://')}/streamed"
    rows = await deliver(streams, url, "s3", f"{ACCESS_KEY}:{SECRET_KEY}")
    held: list[dict[str, Any]] = []
    keys = sorted(entry.key for entry in bucket.objects().entries())
    assert {key.rpartition("/")[0].split("/dt=")[0] for key in keys} == {
        f"streamed/org={streams.world.acme.id}"
    }
    for key in keys:
        content = gzip.decompress(bucket.content(key))
        held += [json.loads(line) for line in content.splitlines()]
    assert sorted(held, key=lambda row: row["id"]) == rows


CHECK = """
const { Webhook } = require("standardwebhooks");
const given = JSON.parse(require("fs").readFileSync(0));
const hook = new Webhook(given.secret);
const at = new Date(Number(given.headers["webhook-timestamp"]) * 1000);
const name = given.headers["webhook-id"];
const signed = hook.sign(name, at, given.body);
if (!given.headers["webhook-signature"].split(" ").includes(signed)) throw new Error("differs");
console.log("ok");
"""


async def test_standardwebhooks_of_npm_signs_the_same(streams, tmp_path):
    await fill(streams)
    modules = node_modules()
    async with receiving() as receiver:
        created = await streams.call(
            "POST", name="SIEM", kind="webhook", url=receiver.url, after="start"
        )
        await deliver_all(streams.services, created["id"])
    for request in receiver.kept:
        given = {"secret": created["secret"], "headers": request.headers}
        ran = await asyncio.to_thread(
            subprocess.run,
            ["node", "-e", CHECK],
            input=json.dumps({**given, "body": request.body.decode()}),
            env={"NODE_PATH": str(modules), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert ran.stdout == "ok\n", ran.stderr
    assert receiver.ids == await all_ids(streams)
