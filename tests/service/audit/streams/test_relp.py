"""Syslog by RELP: a stream goes on once each message is acknowledged."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.nginx import make_certificates
from tests.polling import HANG_S
from tests.service.audit.streams.conftest import Streams
from tests.service.audit.streams.receivers import deliver_all, deliver_until, stored
from tests.service.audit.streams.test_delivery import accept, all_ids

OK = b"200 OK"
LOOPBACK = ("127.0.0.1", 0)


class RelpReceiver:
    """`answer` decides about each message; None closes the connection. `kept` are those with OK."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self.answer = answer
        self.commands: list[str] = []
        self.kept: list[dict[str, Any]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (number := await reader.readuntil(b" ")) and await self._take(reader) is not None:
                answer = self.last
                writer.write(b"%srsp %d %s\n" % (number, len(answer), answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader) -> bytes | None:
        """The answer to the frame that is read."""
        command = (await reader.readuntil(b" ")).decode().strip()
        length = b""
        while (digit := await reader.readexactly(1)).isdigit():
            length += digit
        content = await reader.readexactly(int(length) + 1) if int(length) else b""
        self.commands.append(command)
        self.last = OK if command != "syslog" else self.answer(content) or b""
        if command == "syslog" and self.last == OK:
            self.kept.append(json.loads(content[content.index(b"{") :]))
        return self.last or None

    @property
    def ids(self) -> list[str]:
        return list(dict.fromkeys(entry["id"] for entry in self.kept))


def trust(streams: Streams, folder: Path) -> ssl.SSLContext:
    """What a receiver over TLS has, which the streams trust."""
    certificates = make_certificates(folder)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificates.certificate, certificates.key)
    trusted = ssl.create_default_context(cafile=str(certificates.authority))
    streams.services.sender._tls = lambda: trusted
    return own


@asynccontextmanager
async def receiving(
    answer: Callable[[bytes], bytes | None] = lambda _: OK, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RelpReceiver]:
    receiver = RelpReceiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls, limit=2**20)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


async def test_each_message_is_acknowledged_over_tls(streams, tmp_path):
    own = trust(streams, tmp_path)
    await accept(streams, 30, package_name="grüße\n\x00")
    async with receiving(tls=own) as receiver:
        stream_id = await streams.create(f"relp+tls://127.0.0.1:{receiver.port}", kind="syslog")
        await deliver_all(streams.services, stream_id)
        rows = list(reversed(await streams.pages(limit=1000)))
    assert receiver.kept == rows
    assert receiver.commands == ["open", *["syslog"] * len(rows), "close"]
    answer = (await stored(streams.services, stream_id)).answer
    assert answer == f"{len(rows)} messages acknowledged"


async def test_an_answer_after_the_end_of_tls_repeats_no_message(streams, tmp_path):
    """As of rsyslog, which answers `close` although the stream has already ended TLS."""
    own, listening, ended = trust(streams, tmp_path), socket.create_server(LOOPBACK), []

    def serve() -> None:
        with listening, own.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.settimeout(HANG_S)
            for answer in (b"1 rsp 6 200 OK\n", b"2 rsp 6 200 OK\n", b"3 rsp 0\n0 serverclose 0\n"):
                ended.append(connection.recv(2**16))
                connection.sendall(answer)

    port = listening.getsockname()[1]
    stream_id = await streams.create(f"relp+tls://127.0.0.1:{port}", kind="syslog")
    served = asyncio.create_task(asyncio.to_thread(serve))
    tested = await streams.call("POST", f"/{stream_id}/test")
    await served

    assert tested == {"accepted": True, "answer": "1 messages acknowledged"}
    assert ended[-1] == b"3 close 0\n"


async def test_a_stream_goes_on_after_the_last_acknowledgement_alone(streams):
    """A connection that ends in between: the whole batch is sent again."""
    left, then = iter([OK, OK]), list[bytes]()
    async with receiving(lambda _: next(left, *then or [None])) as receiver:
        await accept(streams, 5)
        stream_id = await streams.create(f"relp://127.0.0.1:{receiver.port}", kind="syslog")
        await deliver_until(streams.services, lambda: len(receiver.kept) >= 2)
        assert (await stored(streams.services, stream_id)).cursor == 0
        then.append(OK)
        await deliver_all(streams.services, stream_id)
        # While the receiver hangs up, the clock of the test may have reached the next hour.
        rows = [each for each in receiver.ids if not each.startswith(stream_id)]
        assert rows == await all_ids(streams)
    assert receiver.commands.count("open") > 1


async def test_a_refused_message_is_parked(streams):
    def answer(content: bytes) -> bytes:
        return b"500 cannot be parsed" if b"refused-package" in content else OK

    async with receiving(answer) as receiver:
        await accept(streams, 2)
        await accept(streams, 1, package_name="refused-package")
        await accept(streams, 2)
        stream_id = await streams.create(f"relp://127.0.0.1:{receiver.port}", kind="syslog")
        await deliver_all(streams.services, stream_id)
        assert len(receiver.ids) == len(await all_ids(streams)) - 1
    assert (await stored(streams.services, stream_id)).parked == 1


async def test_a_receiver_that_takes_no_session_has_refused_no_row(streams):
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"1 rsp 20 500 no more sessions\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await accept(streams, 2)
    stream_id = await streams.create(f"relp://127.0.0.1:{port}", kind="syslog")
    for _ in range(300):
        await streams.services.deliveries.deliver_due()
        await asyncio.sleep(0.001)
    server.close()
    stream = await stored(streams.services, stream_id)
    assert (stream.parked, stream.cursor, stream.state) == (0, 0, "active")
    assert "500 no more sessions" in stream.answer


@pytest.mark.parametrize("said", [b"1 rsp x OK\n", b"1 rsp 99999999 200\n", b"1 other 6 200 OK\n"])
async def test_what_does_not_speak_relp_is_tried_again(streams, said):
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    stream_id = await streams.create(f"relp://127.0.0.1:{port}", kind="syslog")
    tested = await streams.call("POST", f"/{stream_id}/test")
    server.close()
    assert not tested["accepted"]
    assert "no answer of RELP" in tested["answer"]
