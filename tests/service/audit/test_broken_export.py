"""Exports that break off: never to be taken for whole, and recorded as what they are."""

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta

import msgspec
import pyarrow.parquet as pq
import pytest
from hypercorn.asyncio import serve
from hypercorn.config import Config
from msgspec import structs
from structlog.testing import capture_logs

from analytics.export import writers
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.errors import StoreFault
from analytics.model.filters import Query
from analytics.model.schema import AUDIT_SCHEMA
from service.audit import exports as exporting
from service.audit.exports import ExportBroken, Exporter
from service.core.errors import SEGMENT_DAMAGED, StorageBusy
from tests.analytics.samples import sample_row
from tests.conftest import ADMIN_TOKEN, BY_OPERATOR, START, refused, settings_over
from tests.crashes import watched_steps
from tests.databases import SHORT_WAIT_S
from tests.other_programs import write_lock
from tests.polling import until

TODAY = START.date().isoformat()


@pytest.fixture
def settings(tmp_path):
    """A database that is not waited for long."""
    return msgspec.structs.replace(settings_over(tmp_path), database_wait_s=SHORT_WAIT_S)


@pytest.fixture
async def filled(audit):
    """A sealed row on each of three days."""
    await audit.accept([sample_row(START - timedelta(days=n)) for n in range(3)])
    assert await audit.seal() >= 3
    return audit


async def begin(audit):
    return await audit.services.exporter.prepare(
        audit.world.acme, Query(), FileEncoding(ExportFormat.CSV), BY_OPERATOR, START
    )


def oldest_segment(audit):
    """The file a newest-first export comes to last."""
    day = (START - timedelta(days=2)).date().isoformat()
    (path,) = audit.services.settings.audit_dir.glob(f"tenant=*/day={day}/*.parquet")
    return path


def spoil_payloads(path) -> None:
    """Damage the one column that counting does not read."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(AUDIT_SCHEMA.names.index("payload"))
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)


async def events(audit, event: str) -> list[dict]:
    """The payloads of today's rows of `event`, once every export has been recorded."""
    await audit.services.exporter.drain()
    page = await audit.page(event=event, since=TODAY)
    return [entry["payload"] for entry in page["entries"]]


async def test_a_file_that_vanishes_midway_breaks_the_export_off(filled, monkeypatch):
    monkeypatch.setattr(writers, "TEXT_ROWS", 1)
    export = await begin(filled)
    oldest_segment(filled).unlink()
    received: list[bytes] = []

    with pytest.raises(StoreFault):
        await _receive(await filled.services.exporter.stream(export), received)

    assert received
    (end,) = await events(filled, "audit_export_finished")
    assert end["complete"] is False
    assert end["sha256"] is None
    assert end["export_id"] == export.export_id
    assert 0 < end["rows"] < export.rows
    assert end["bytes"] == len(b"".join(received))


@pytest.mark.parametrize("difference", [-1, 1])
async def test_another_number_of_rows_than_counted_breaks_the_export_off(filled, difference):
    export = await begin(filled)
    miscounted = replace(export, rows=export.rows + difference)

    with pytest.raises(ExportBroken):
        await _receive(await filled.services.exporter.stream(miscounted), [])

    assert [end["complete"] for end in await events(filled, "audit_export_finished")] == [False]


async def test_a_client_that_leaves_is_recorded(filled):
    stream = await filled.services.exporter.stream(await begin(filled))

    await anext(stream)
    await stream.aclose()

    (end,) = await events(filled, "audit_export_finished")
    assert end["complete"] is False
    assert end["rows"] == 0


async def test_a_client_gone_before_the_first_byte_is_recorded(filled):
    """The server then drops the file unread; that it was announced must not be the last word."""
    stream = await filled.services.exporter.stream(await begin(filled))

    del stream
    for _ in range(10):  # the event loop closes what is not referenced any more, a few steps later
        await asyncio.sleep(0)

    (end,) = await events(filled, "audit_export_finished")
    assert end["complete"] is False


async def test_an_export_that_takes_too_long_breaks_off(filled):
    """Files that were replaced meanwhile are kept only so long (EXPORT_MAX_S)."""
    services = filled.services
    limited = structs.replace(services.settings, export_max_s=-1.0)
    hasty = Exporter(limited, services.store, services.lake)

    with pytest.raises(ExportBroken):
        await _receive(await hasty.stream(await begin(filled)), [])
    await hasty.drain()

    assert [end["complete"] for end in await events(filled, "audit_export_finished")] == [False]


async def test_what_cannot_be_counted_is_neither_exported_nor_recorded(filled):
    lost = oldest_segment(filled)
    lost.unlink()

    response = await filled.export(format="csv")

    assert await refused(response) == (503, SEGMENT_DAMAGED(value=lost.stem).text)
    assert response.headers["retry-after"] == str(SEGMENT_DAMAGED.retry_after_s)
    assert await events(filled, "audit_exported") == []


async def test_what_cannot_be_recorded_is_not_exported(filled):
    with write_lock(filled.services.settings.data_dir):
        response = await filled.export(format="csv")

    assert await refused(response) == (503, StorageBusy.text)
    assert await events(filled, "audit_exported") == []


async def test_an_end_that_the_database_does_not_take_is_recorded_once_it_does(filled, monkeypatch):
    """Otherwise the log would never say what became of the file."""
    monkeypatch.setattr(exporting, "_PAUSES_S", (0.01,) * 1_000)
    stream = await filled.services.exporter.stream(await begin(filled))
    with write_lock(filled.services.settings.data_dir) as release, capture_logs() as logs:
        await _receive(stream, [])
        await until(lambda: "export_end_not_recorded" in {line["event"] for line in logs})
        release()
        await until(lambda: not filled.services.exporter._closing)

    assert [end["complete"] for end in await events(filled, "audit_export_finished")] == [True]


async def test_an_end_that_is_never_recorded_is_in_the_log(filled):
    export = await begin(filled)
    stream = await filled.services.exporter.stream(export)
    with write_lock(filled.services.settings.data_dir), capture_logs() as logs:
        await _receive(stream, [])
        await filled.services.exporter.drain()

    (said,) = [line for line in logs if line["event"] == "export_end_not_recorded"]
    assert (said["export_id"], said["complete"], said["rows"], said["again_in_s"]) == (
        export.export_id,
        True,
        export.rows,
        None,
    )


@pytest.mark.parametrize("step", ["UPDATE counters", "INSERT INTO journal", "COMMIT"])
async def test_who_leaves_while_an_export_is_recorded_leaves_no_beginning_without_an_end(
    filled, step
):
    """The row about it may be durable, and its client has gone."""
    beginning = asyncio.create_task(begin(filled))

    def leave(present: str) -> None:
        if present.startswith(step):
            beginning.cancel()

    with watched_steps(filled.services.store, leave):
        (left,) = await asyncio.gather(beginning, return_exceptions=True)
        await filled.services.exporter.drain()

    assert isinstance(left, asyncio.CancelledError)
    ends = await events(filled, "audit_export_finished")
    begins = await events(filled, "audit_exported")
    assert [row["export_id"] for row in begins] == [row["export_id"] for row in ends]
    assert [row["complete"] for row in ends] == [False] * len(begins)


@pytest.mark.parametrize("export_format", ["csv", "json", "ndjson"])
async def test_over_http_a_broken_export_is_cut_and_not_ended(filled, export_format):
    """A client must not take what it has for the whole."""
    whole = await _download(filled, export_format)
    assert whole.startswith(b"HTTP/1.1 200")
    assert whole.endswith(b"0\r\n\r\n")
    spoil_payloads(oldest_segment(filled))

    broken = await _download(filled, export_format)

    assert broken.startswith(b"HTTP/1.1 200")
    assert b"aud_" in broken
    assert not broken.endswith(b"0\r\n\r\n")
    ends = [end["complete"] for end in await events(filled, "audit_export_finished")]
    assert ends == [False, True]


async def _receive(stream, received: list[bytes]) -> None:
    async for chunk in stream:
        received.append(chunk)  # noqa: PERF401 - what came before a fault must stay


async def _download(audit, export_format: str) -> bytes:
    """All that a real server sends over a real connection until it closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = config.errorlog = None
    stop = asyncio.Event()
    server = asyncio.create_task(
        serve(_without_lifespan(audit), config, shutdown_trigger=stop.wait)
    )
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        lines = [
            f"GET /admin/ui/orgs/acme/audit/export?format={export_format} HTTP/1.1",
            "host: localhost",
            f"x-service-admin-token: {ADMIN_TOKEN}",
            "connection: close",
        ]
        writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        return received
    finally:
        stop.set()
        await server
        listener.detach()


def _without_lifespan(audit):
    """The app without its background sealer."""

    async def app(scope, receive, send):
        if scope["type"] != "lifespan":
            await audit.world.app(scope, receive, send)

    return app
