"""The most frequent values are kept, and are always those of all rows."""

import random
from collections import Counter
from datetime import timedelta

from analytics.model.filters import parse_query
from analytics.query.reader import Reader
from service.audit.tenant_log import open_log
from service.store.journal import append
from tests.analytics.samples import sample_row


async def values_of(world, org, query):
    services = world.services
    log = await open_log(services.store, services.lake, org, world.clock.now)
    values = await log.values(query, "package_name", 1_000, 30.0)
    groups = await log.groups(query, ["package_name"], 1_000, 30.0)
    assert [(group.values[0], group.rows) for group in groups] == values
    return values


async def test_they_are_those_of_all_rows_whatever_is_appended_or_sealed(world):
    """Late rows among them, and rows of another organisation."""
    draw, rows = random.Random(9), {world.acme.id: [], world.other.id: []}
    start = world.clock.now - timedelta(days=5)
    query = parse_query({"since": [start.isoformat()], "until": ["2026-03-03T00:00:00Z"]})
    for step in range(30):
        org = draw.choice([world.acme, world.acme, world.other])
        added = [
            sample_row(
                world.clock.now - timedelta(hours=draw.uniform(0, 200)),
                package_name=draw.choice("abcde"),
            )
            for _ in range(draw.randrange(4))
        ]
        async with world.services.store.write() as work:
            await append(work.session, org.id, added, now=world.clock.now)
        rows[org.id] += added
        if step % 7 == 6:
            await world.services.sealer.seal_due(everything=True)
        for each in (world.acme, world.other):
            counts = Counter(
                row.package_name
                for row in rows[each.id]
                if query.since <= row.created_at < query.until
            )
            for _ in range(2):
                assert dict(await values_of(world, each, query)) == counts


async def test_they_are_read_once_while_no_row_of_their_time_is_new(world, monkeypatch):
    reads = []
    read = Reader.count_values

    def counted(self, *arguments):
        reads.append(arguments)
        return read(self, *arguments)

    monkeypatch.setattr(Reader, "count_values", counted)
    query = parse_query({"until": ["2026-03-03T00:00:00Z"]})

    async def add(days_ago):
        at = world.clock.now - timedelta(days=days_ago)
        async with world.services.store.write() as work:
            await append(work.session, world.acme.id, [sample_row(at)], now=world.clock.now)
        return await values_of(world, world.acme, query)

    await add(3)
    assert await add(0) == await add(0)
    assert len(reads) == 1
    await add(3)
    assert len(reads) == 2
