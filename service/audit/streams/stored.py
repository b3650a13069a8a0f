"""Streams as they are stored, and the rows that are read for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from analytics.evidence.groups import rows_after
from analytics.model.filters import Query, mask, parse_query
from service.audit.lake import Lake
from service.audit.streams.sending import Delivered, Refused, Sender
from service.audit.streams.sinks import Line, Sink, SinkKind, outgoing
from service.core.secrets import UnusableSecret, unseal
from service.core.settings import Settings
from service.store.store import Store
from service.store.tables import Stream

CHUNK_ROWS: Final = 16_384
"""How many rows are read at a time at most."""
ROTATION: Final = timedelta(days=1)
"""For so long the secret that was replaced is used as well."""


def stored_query(stream: Stream) -> Query:
    """The filters of a stream."""
    return parse_query(parse_qs(stream.query), has_order=False)


def sink_of(stream: Stream, settings: Settings, now: datetime) -> Sink:
    """The receiver of a stream, with its secrets. Raises UnusableSecret."""
    sealed = [stream.secret]
    if stream.former_secret and stream.rotated_at and now - stream.rotated_at < ROTATION:
        sealed.append(stream.former_secret)
    return Sink(
        stream.id,
        stream.tenant_id,
        cast("SinkKind", stream.kind),
        stream.url,
        stream.region,
        [unseal(settings.secret_key, stream.id, each) for each in sealed],
        urlsplit(settings.public_url).hostname or "",
    )


async def send_lines(
    sender: Sender, settings: Settings, stream: Stream, lines: Sequence[Line], now: datetime
) -> Delivered | Refused:
    """Send rows with the secret that the receiver takes, the newest one first."""
    try:
        sink = sink_of(stream, settings, now)
    except UnusableSecret:
        return Refused("denied", "COUNTERSIGN_SECRET_KEY has changed: set the secret again")
    for request in outgoing(sink, lines, now):
        outcome = await sender.send(request)
        if not isinstance(outcome, Refused) or outcome.kind != "denied":
            break
    return outcome


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of organisations in the order of seq, also those below the retention floor."""

    store: Store
    lake: Lake

    async def after(
        self, tenant_id: str, query: Query, seq: int, limit: int = CHUNK_ROWS
    ) -> tuple[pa.Table, int]:
        """Rows of `query` among the next `limit` after `seq`, and the last seq of these."""
        snapshot = await self.store.snapshot(tenant_id)

        def read() -> tuple[pa.Table, int]:
            rows, upto = rows_after(self.lake.segments, snapshot, seq, limit)
            return rows.filter(mask(query, rows)), upto

        return await self.lake.run_in_thread(read)
