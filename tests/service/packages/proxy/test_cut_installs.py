"""A file that does not arrive whole is recorded, and so is the next attempt."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from service.core.settings import Settings
from tests.databases import IS_POSTGRESQL
from tests.other_programs import write_lock
from tests.polling import until
from tests.service.packages.proxy.files import LARGE, held
from tests.service.packages.proxy.proxied import Proxied, running_proxy, second_process, wheel_of
from tests.service.packages.proxy.registry import FakeRegistry
from tests.service.packages.proxy.served import Served, is_answering, serving

WHEEL = "/files/foo-1.0-py3-none-any.whl"
TARBALL = "/tarballs/left-pad/1.0.0.tgz"
NPM_PATH = "npm/left-pad/-/left-pad-1.0.0.tgz"
VAST = LARGE * 6
"""More than the buffers of a connection take."""


@pytest.fixture
async def served(proxied: Proxied) -> AsyncIterator[Served]:
    """A server whose registry offers a large wheel."""
    proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
    async with serving(proxied) as running:
        yield running


async def cut_off(served: Served, path: str) -> None:
    """Have a client leave while the registry is still sending."""
    gate, before = asyncio.Event(), len(await served.proxied.rows())
    served.proxied.registry.does(WHEEL, held(LARGE, gate, len(LARGE)))
    await served.get(path, most=100_000)
    await until_rows(served.proxied, before + 2)
    gate.set()
    await until(lambda: not served.services.proxy.files._tasks)


async def until_rows(proxied: Proxied, count: int) -> None:
    while len(await proxied.rows()) < count:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.02)


async def settled(served: Served) -> None:
    """Wait until everything that ended is recorded."""
    await served.services.proxy.installs.close()


async def test_a_client_that_leaves_is_recorded_and_its_next_attempt_too(served: Served):
    path = await served.proxied.path_of("foo")
    await cut_off(served, path)
    for _ in range(2):
        assert (await served.get(path)).body == LARGE

    allowed, cut, again = await served.proxied.rows()
    assert [row["event"] for row in (allowed, cut, again)] == [
        "install_allowed",
        "install_cut",
        "install_allowed",
    ]
    said = cut["payload"]
    assert (said["install_id"], said["cause"]) == (allowed["id"], "connection_closed")
    assert 0 <= said["bytes_sent"] < len(LARGE)
    assert cut["decision"] is None
    same = ("packageName", "version", "ecosystem", "actor", "request_id", "file_name", "client")
    for name in (*same, "file_sha256"):
        assert cut[name] == allowed[name], name


@pytest.mark.slow
async def test_a_client_that_leaves_a_cached_file_is_recorded(served: Served):
    served.proxied.publishes("foo", wheel_of("foo", "1.0", VAST))
    path = await served.proxied.path_of("foo")
    assert (await served.get(path)).body == VAST
    served.proxied.clock.advance(minutes=10)
    await served.get(path, most=100_000)
    await until_rows(served.proxied, 3)

    row = (await served.proxied.rows())[-1]
    assert row["event"] == "install_cut"
    assert row["payload"]["bytes_sent"] < len(VAST)


@pytest.mark.parametrize(
    ("sent", "cause"),
    [(LARGE[:-50_000], "upstream_failed"), (LARGE[:-1] + b"!", "digest_mismatch")],
)
async def test_a_registry_that_fails_is_the_cause(served: Served, sent: bytes, cause: str):
    gate = asyncio.Event()
    path = await served.proxied.path_of("foo")
    served.proxied.registry.does(WHEEL, held(sent, gate, len(LARGE)))
    assert not (await served.get(path, on_body=gate)).is_whole
    await settled(served)

    _, cut = await served.proxied.rows()
    assert (cut["event"], cut["payload"]["cause"]) == ("install_cut", cause)


async def test_a_registry_that_sends_nothing_leaves_no_row(served: Served):
    """No byte was sent, so there was no install: clients that retry for an hour leave none."""
    path = await served.proxied.path_of("foo")
    served.proxied.registry.says(WHEEL, b"", status=500)
    assert (await served.get(path)).status == 502

    assert await served.proxied.rows() == []


@pytest.mark.parametrize("is_cached", [False, True])
async def test_a_client_that_closes_after_the_last_byte_has_it_all(served: Served, is_cached: bool):
    path = await served.proxied.path_of("foo")
    etag = f'"sha256-{hashlib.sha256(LARGE).hexdigest()}"'
    if is_cached:
        assert (await served.get(path)).body == LARGE
    for headers in (
        ("range: bytes=0-1999999",),
        ("range: bytes=2000000-",),
        (f"range: bytes=-{len(LARGE)}",),
        (f"range: bytes={len(LARGE)}-",),
        (f"if-none-match: {etag}",),
        (),
    ):
        await served.get(path, *headers)
    await served.get(path, most=len(LARGE))
    await settled(served)

    assert await served.proxied.events() == ["install_allowed"]


async def test_a_row_is_cut_once(served: Served):
    path, gate = await served.proxied.path_of("foo"), asyncio.Event()
    served.proxied.registry.does(WHEEL, held(LARGE[:-50_000], gate, len(LARGE)))
    started = [asyncio.Event() for _ in range(3)]
    clients = [asyncio.create_task(served.get(path, on_body=event)) for event in started]
    await asyncio.gather(*(event.wait() for event in started))
    gate.set()
    for client in clients:
        assert not (await client).is_whole
    await settled(served)

    assert await served.proxied.events() == ["install_allowed", "install_cut"]


@pytest.mark.slow
async def test_a_client_that_keeps_leaving_does_not_fill_the_journal(served: Served, monkeypatch):
    """Two rows for each connection would be rows without end for one key."""
    monkeypatch.setattr("service.packages.proxy.install_marks.CUTS_MAX", 2)
    served.proxied.publishes("foo", wheel_of("foo", "1.0", VAST))
    path = await served.proxied.path_of("foo")

    async def leave_and_count() -> list[str]:
        for _ in range(4):
            await served.get(path, most=100_000)
            await until(lambda: not is_answering())
            await settled(served)
        return await served.proxied.events()

    allowed_and_cut = ["install_allowed", "install_cut"]
    assert await leave_and_count() == [*allowed_and_cut * 2, "install_allowed"]
    served.proxied.clock.advance(minutes=10)
    assert await leave_and_count() == [
        *allowed_and_cut * 2,
        "install_allowed",
        *allowed_and_cut * 2,
        "install_allowed",
    ]


async def test_the_next_attempt_is_recorded_by_every_process(served: Served):
    """Though another process remembers the install that was cut."""
    path = await served.proxied.path_of("foo")
    async with second_process(served.proxied) as other:
        gate = asyncio.Event()
        served.proxied.registry.does(WHEEL, held(LARGE[:-50_000], gate, len(LARGE)))
        begun = asyncio.Event()
        client = asyncio.create_task(served.get(path, on_body=begun))
        await begun.wait()
        served.proxied.registry.says(WHEEL, LARGE)
        for _ in range(2):
            assert await (await other.get(path)).get_data() == LARGE
        assert await served.proxied.events() == ["install_allowed"]
        gate.set()
        await client
        await settled(served)
        assert await (await other.get(path)).get_data() == LARGE

    assert await served.proxied.events() == ["install_allowed", "install_cut", "install_allowed"]


async def test_a_service_that_stops_records_what_it_cuts_off(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
    gate, begun = asyncio.Event(), asyncio.Event()
    async with serving(proxied) as served:
        path = await proxied.path_of("foo")
        proxied.registry.does(WHEEL, held(LARGE, gate, len(LARGE)))
        client = asyncio.create_task(served.get(path, on_body=begun))
        await begun.wait()
    gate.set()
    await client

    assert await proxied.events() == ["install_allowed", "install_cut"]


async def test_a_client_that_leaves_before_its_row_is_stored_is_cut(served: Served):
    """What waits for a commit cannot be taken back."""
    served.proxied.publishes("foo", wheel_of("foo", "1.0", b"small"))
    path = await served.proxied.path_of("foo")
    with write_lock(served.services.settings.data_dir):
        client = asyncio.create_task(served.get(path))
        await until(lambda: served.services.group_commit._worker is not None)
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)
        await until(lambda: not is_answering())
    await until_rows(served.proxied, 2)

    assert await served.proxied.events() == ["install_allowed", "install_cut"]


async def test_a_cut_that_cannot_be_stored_is_logged(settings: Settings, registry: FakeRegistry):
    """The mark stays, too: both are one change."""
    wait_s = 2.0 if IS_POSTGRESQL else 0.05  # it must suffice for a new connection
    async with running_proxy(settings, registry, database_wait_s=wait_s) as proxied:
        proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
        async with serving(proxied) as served:
            gate, begun = asyncio.Event(), asyncio.Event()
            path = await proxied.path_of("foo")
            registry.does(WHEEL, held(LARGE[:-50_000], gate, len(LARGE)))
            client = asyncio.create_task(served.get(path, on_body=begun))
            await begun.wait()
            with write_lock(settings.data_dir), capture_logs() as logs:
                gate.set()
                await client
                await settled(served)
        async with proxied.world.services.store.read() as session:
            marks = await session.scalar(text("SELECT count(*) FROM install_marks"))

    assert marks == 1
    assert "install_cut_not_recorded" in {line["event"] for line in logs}
