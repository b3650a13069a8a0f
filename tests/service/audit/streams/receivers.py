"""A small receiver of rows, which answers as a test says, and the streams that lead to it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from service.app.composition import Services
from service.audit.streams.rows import RECONCILIATION
from service.store.tables import Stream
from tests.polling import HANG_S


@dataclass
class Received:
    """A request, or what came over a connection that is no HTTP."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass(frozen=True)
class Reply:
    """`keeps` is whether the receiver stores what it was sent; `is_cut` sends no answer at all."""

    status: int = 200
    body: bytes = b"ok"
    headers: tuple[tuple[str, str], ...] = ()
    keeps: bool = True
    is_cut: bool = False
    hangs: bool = False


ACCEPTED = Reply()


def refused(status: int, body: bytes = b"no", **headers: str) -> Reply:
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status, body, fields, keeps=False)


@dataclass
class Receiver:
    """`answer` decides about each request. `kept` are those that were stored, in order."""

    answer: Callable[[Received], Reply] = lambda request: ACCEPTED
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    kept: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/rows"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that it holds, in the order of their first arrival."""
        held: dict[str, dict[str, Any]] = {}
        for request in self.kept:
            for entry in request.entries:
                if entry["event"] != RECONCILIATION:
                    held.setdefault(entry["id"], entry)
        return list(held.values())

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        entries = [entry for request in self.kept for entry in request.entries]
        return [entry for entry in entries if entry["event"] == RECONCILIATION]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(first.split()[1], headers, body)
        self.requests.append(request)
        reply = self.answer(request)
        if reply.keeps:
            self.kept.append(request)
        if reply.hangs:
            await asyncio.sleep(HANG_S)
        if reply.is_cut:
            raise ConnectionResetError
        fields = "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
        head = f"HTTP/1.1 {reply.status} x\r\ncontent-length: {len(reply.body)}\r\n{fields}\r\n"
        writer.write(head.encode() + reply.body)
        await writer.drain()


@asynccontextmanager
async def receiving(
    answer: Callable[[Received], Reply] = lambda request: ACCEPTED,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls, limit=2**24)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


async def stored(services: Services, stream_id: str) -> Stream:
    async with services.store.read() as session:
        found = await session.scalar(select(Stream).where(Stream.id == stream_id))
    assert found is not None
    return found


async def deliver_until(services: Services, is_done: Callable[[], Any]) -> None:
    """Run rounds until `is_done()`, and one more, which stores where streams are."""
    while not is_done():
        await services.deliveries.deliver_due()
        await asyncio.sleep(0.001)
    await services.deliveries.deliver_due()


async def deliver_all(services: Services, stream_id: str) -> None:
    """Run rounds until the stream has delivered all rows that there are, or is suspended."""
    stream = await stored(services, stream_id)
    spans = (await services.store.snapshot(stream.tenant_id)).spans
    last_seq = max(last for _, last, _ in spans)
    while True:
        await services.deliveries.deliver_due()
        await asyncio.sleep(0.001)
        stream = await stored(services, stream_id)
        if stream.cursor >= last_seq or stream.state == "suspended":
            return
