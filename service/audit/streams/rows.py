"""What a stream carries: rows in the order of seq, and records by which to tell that all are there.

Rows are also those below the retention floor, until they are pruned.
"""

import base64
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from analytics.evidence.groups import rows_after
from analytics.export.csv_json import JsonSpelling
from analytics.export.text_encoder import TextEncoder
from analytics.model.filters import Query, mask
from analytics.model.instants import format_us
from analytics.model.schema import audit_id
from service.audit.evidence.trees import last_checkpoint, log_name
from service.audit.lake import Lake
from service.audit.streams.sinks import Line
from service.store.store import Store
from service.store.tables import EvidenceTree, Stream

CHUNK_ROWS: Final = 16_384
"""How many rows are read at a time at most."""
RECONCILIATION: Final = "stream_reconciliation"
_HOUR_S: Final = 3_600
_RECORD_ROWS: Final = 100_000
_RECORD_PARKED: Final = 100


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of organisations in threads. Raises StoreFault."""

    store: Store
    lake: Lake

    async def lines(
        self, tenant_id: str, query: Query, seq: int, limit: int
    ) -> tuple[list[Line], int, bool]:
        """The rows of `query` among the next `limit` after `seq`.

        Also the seq up to which these are all, and whether there are none after it.
        """
        snapshot = await self.store.snapshot(tenant_id)

        def read() -> tuple[list[Line], int, bool]:
            rows, upto = rows_after(self.lake.segments, snapshot, seq, limit)
            lines = _lines(rows.filter(mask(query, rows)), tenant_id)
            return lines, upto, all(last <= upto for _, last, _ in snapshot.spans)

        return await self.lake.run_in_thread(read)

    async def seqs(self, tenant_id: str, query: Query, seq: int) -> tuple[list[int], int]:
        """As `lines`, the seqs alone."""
        snapshot, is_all = await self.store.snapshot(tenant_id), query == Query()

        def read() -> tuple[list[int], int]:
            segments = self.lake.segments
            rows, upto = rows_after(segments, snapshot, seq, CHUNK_ROWS, only_seqs=is_all)
            wanted = rows if is_all else rows.filter(mask(query, rows))
            return wanted["seq"].to_pylist(), upto

        return await self.lake.run_in_thread(read)


def _lines(rows: pa.Table, tenant_id: str) -> list[Line]:
    pieces = TextEncoder(tenant_id, JsonSpelling("", "\n")).texts(rows) if rows.num_rows else ()
    texts = b"".join(piece for piece, _ in pieces).split(b"\n")
    at_us, received_us = (
        rows[name].cast(pa.int64()).to_pylist() for name in ("created_at", "received_at")
    )
    # Not strict: a line feed ends the last text.
    columns = (rows["seq"].to_pylist(), at_us, received_us, rows["event"].to_pylist(), texts)
    return [Line(*values) for values in zip(*columns, strict=False)]


def is_record_due(last_at: datetime, now: datetime, rows: int, parked: int) -> bool:
    """Whether a record is due: with each hour, and after many rows."""
    is_other_hour = last_at.timestamp() // _HOUR_S != now.timestamp() // _HOUR_S
    return is_other_hour or rows >= _RECORD_ROWS or parked >= _RECORD_PARKED


async def record_of(
    reader: RowReader,
    stream: Stream,
    query: Query,
    span: tuple[int, int],
    parked: Collection[str],
    now: datetime,
) -> Line:
    """The record of the rows after the first seq up to the second, but for those `parked`.

    It is made of the log, and not of what was sent. `ids_sha256` is the digest of the ids, in their
    order and with a line feed between two. Raises StoreFault.
    """
    after, upto = span
    digest, count, seq = hashlib.sha256(), 0, after
    while seq < upto:
        seqs, seq = await reader.seqs(stream.tenant_id, query, seq)
        ids = [audit_id(each) for each in seqs if each <= upto]
        for row_id in (each for each in ids if each not in parked):
            digest.update(f"\n{row_id}".encode() if count else row_id.encode())
            count += 1
    async with reader.store.read() as session:
        tree = await session.get(EvidenceTree, stream.tenant_id)
        last = await last_checkpoint(session, stream.tenant_id)
    record: dict[str, Any] = {
        "id": f"{stream.id}:{audit_id(after)}:{audit_id(upto)}",
        "created_at": format_us(now),
        "event": RECONCILIATION,
        "tenant_id": stream.tenant_id,
        "stream_id": stream.id,
        "after_id": audit_id(after),
        "to_id": audit_id(upto),
        "rows": count,
        "ids_sha256": digest.hexdigest(),
        "parked_ids": sorted(parked),
    }
    if tree is not None and last is not None:
        record["checkpoint"] = {
            "origin": log_name(tree.origin, last.generation),
            "size": last.size,
            "root": base64.b64encode(last.root).decode(),
            "last_id": audit_id(last.last_seq),
        }
    return record_line(upto, record, now)


def record_line(seq: int, record: dict[str, Any], now: datetime) -> Line:
    """A record that is no row, sent as one."""
    at_us = round(now.timestamp() * 1e6)
    return Line(seq, at_us, at_us, record["event"], msgspec.json.encode(record))
