"""The next piece of an export is made while one is being sent: that one, and no other."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
from msgspec import structs

from analytics.export import writers
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, Piece
from analytics.model.filters import Query
from analytics.query.reader import Reader
from service.audit import lake_queries
from service.audit.exports import ExportBroken, Exporter
from service.audit.refusals import QueryTooSlow
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START
from tests.polling import until

CSV = FileEncoding(ExportFormat.CSV)
ENDLESS = "SELECT a.range FROM range(1_000_000_000) a, range(1_000_000_000) b WHERE a.range < -1"
NEVER = float("inf")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the pieces of every export from here on, as they are made: five of them."""
    begun: list[int] = []

    def pieces(*_: object) -> Iterator[Piece]:
        for number in range(5):
            begun.append(number)
            yield Piece(b"x", rows=number, size=number, sha256="")

    monkeypatch.setattr(lake_queries, "export_pieces", pieces)
    return begun


async def exported(audit, ends_at: float = NEVER) -> AsyncIterator[Piece]:
    snapshot = (await begin(audit)).log.snapshot
    return audit.services.lake.queries.export(snapshot, Query(), CSV, ends_at)


async def begin(audit):
    return await audit.services.exporter.prepare(audit.world.acme, Query(), CSV, BY_OPERATOR, START)


async def test_one_piece_is_made_ahead_and_no_more(audit, made):
    """Two cores work at a time, and a stalled reader costs the memory of two pieces."""
    async with aclosing(await exported(audit)) as pieces:
        assert (await anext(pieces)).rows == 0
        await until(lambda: made == [0, 1])
        await asyncio.sleep(0.05)
        assert made == [0, 1]

        assert [piece.rows async for piece in pieces] == [1, 2, 3, 4]


async def test_what_was_made_ahead_has_not_left(audit, made):
    """The record says what the client was sent, not what was ready."""
    export = await begin(audit)
    stream = await audit.services.exporter.stream(export)
    await anext(stream)
    await anext(stream)
    await until(lambda: made == [0, 1, 2])
    await stream.aclose()

    assert export.progress.left.rows == 0


async def test_no_piece_is_begun_after_the_deadline(audit, made):
    with pytest.raises(QueryTooSlow):
        await anext(await exported(audit, ends_at=time.monotonic() - 1))

    assert made == []


async def test_the_deadline_counts_from_the_snapshot_on(audit, made):
    """Files that were replaced since then are kept for so long, whenever the export starts."""
    export = await begin(audit)
    services = audit.services
    limited = structs.replace(services.settings, export_max_s=0.2)
    hasty = Exporter(limited, services.store, services.lake)
    await asyncio.sleep(0.25)

    with pytest.raises(ExportBroken):
        await hasty.stream(export)
    await hasty.drain()

    assert made == []


def prefetching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "prefetch" in thread.name]


@pytest.mark.parametrize("taken", [1, 2])
async def test_a_piece_being_made_ends_when_the_client_leaves(audit, monkeypatch, taken):
    """Otherwise it would search on, for a file that has no receiver.

    That is the next piece, or, where that one lies ready, what comes after it.
    """
    await audit.accept([sample_row(START)])
    monkeypatch.setattr(writers, "TEXT_ROWS", 1)
    rows = Reader.stream

    def stream(self: Reader, *question: object) -> Iterator[object]:
        yield from rows(self, *question)
        resources = self.resources
        yield from resources.engine.stream(ENDLESS, {}, {}, resources.cancellation)

    monkeypatch.setattr(Reader, "stream", stream)
    cursors = audit.services.lake.queries._engine._cursors
    pieces = await exported(audit)
    for _ in range(taken):
        await anext(pieces)
    await until(lambda: cursors)
    await pieces.aclose()

    await until(lambda: not (cursors or prefetching()))
    assert (cursors, prefetching()) == (set(), [])
