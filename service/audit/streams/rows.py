"""What a stream carries: rows in the order of seq, and records by which to tell that all are there.

Rows are also those below the retention floor, until they are pruned.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qs

import msgspec
import pyarrow as pa

from analytics.evidence.groups import rows_after
from analytics.export.csv_json import JsonSpelling
from analytics.export.text_encoder import TextEncoder
from analytics.model.filters import mask, parse_query
from analytics.model.instants import format_us
from analytics.model.schema import audit_id
from analytics.storage.snapshot import Snapshot
from service.audit.evidence.trees import log_name, read_last_checkpoint
from service.audit.lake import Lake
from service.audit.streams.ocsf import ocsf_line
from service.audit.streams.sinks import Format, Line
from service.store.store import Store
from service.store.tables import EvidenceTree, Stream
from service.store.transaction import within

CHUNK_ROWS: Final = 16_384
"""How many rows are read at a time at most."""
RECONCILIATION: Final = "stream_reconciliation"
_IN: Final[dict[Format, Callable[[Line], Line]]] = {"wire": lambda line: line, "ocsf": ocsf_line}
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of streams in a thread. Raises StoreFault."""

    store: Store
    lake: Lake

    async def after(
        self, stream: Stream, seq: int, limit: int, make: Callable[[pa.Table], list[_Made]]
    ) -> tuple[list[_Made], int, bool]:
        """What `make` gives for those of the next `limit` rows after `seq` that the stream has.

        Also the seq up to which these are all, and whether there are none after it. `seqs_of` may
        get the seqs alone.
        """
        snapshot = await self.store.snapshot(stream.tenant_id)
        query = parse_query(parse_qs(stream.query), has_order=False)
        only_seqs = make is seqs_of and not stream.query

        def read() -> tuple[list[_Made], int, bool]:
            segments = self.lake.segments
            rows, upto = rows_after(segments, snapshot, seq, limit, only_seqs=only_seqs)
            made = make(rows if only_seqs else rows.filter(mask(query, rows)))
            return made, upto, all(last <= upto for _, last, _ in snapshot.spans)

        return await self.lake.run_in_thread(read)


def rows_behind(snapshot: Snapshot, seq: int) -> int:
    """About how many rows are after `seq`."""
    return sum(min(rows, max(0, last - seq)) for _, last, rows in snapshot.spans)


def seqs_of(rows: pa.Table) -> list[int]:
    """The seqs of rows."""
    seqs: list[int] = rows["seq"].to_pylist()
    return seqs


def lines_of(tenant_id: str, form: Format, rows: pa.Table) -> list[Line]:
    """Rows as they are sent."""
    pieces = TextEncoder(tenant_id, JsonSpelling("", "\n")).texts(rows) if rows.num_rows else ()
    texts = b"".join(piece for piece, _ in pieces).split(b"\n")
    at = (rows[name].cast(pa.int64()).to_pylist() for name in ("created_at", "received_at"))
    # Not strict: a line feed ends the last text.
    columns = (seqs_of(rows), *at, rows["event"].to_pylist(), texts)
    return [_IN[form](Line(*values)) for values in zip(*columns, strict=False)]


async def record_of(
    reader: RowReader, stream: Stream, after: int, upto: int, parked: Sequence[str], now: datetime
) -> Line:
    """The record of the rows after one seq up to another, but for those `parked`.

    It is made of the log, and not of what was sent. `ids_sha256` is the digest of the ids, in their
    order and with a line feed between two. Raises StoreFault.
    """
    digest, count, seq = hashlib.sha256(), 0, after
    while seq < upto:
        seqs, seq, _ = await reader.after(stream, seq, CHUNK_ROWS, seqs_of)
        for row_id in map(audit_id, seqs):
            if row_id in parked or row_id > audit_id(upto):
                continue
            digest.update(f"\n{row_id}".encode() if count else row_id.encode())
            count += 1
    async with reader.store.read() as session:
        tree = await session.get(EvidenceTree, stream.tenant_id)
        last = await within(session, read_last_checkpoint, stream.tenant_id)
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
        "parked_ids": parked,
    }
    if tree is not None and last is not None:
        record["checkpoint"] = {
            "origin": log_name(tree.origin, last.generation),
            "size": last.size,
            "root": base64.b64encode(last.root).decode(),
            "last_id": audit_id(last.last_seq),
        }
    return record_line(stream, upto, record, now)


def record_line(stream: Stream, seq: int, record: dict[str, Any], now: datetime) -> Line:
    """A record that is no row, sent as one."""
    at_us = round(now.timestamp() * 1e6)
    line = Line(seq, at_us, at_us, record["event"], msgspec.json.encode(record))
    return _IN[cast("Format", stream.format)](line)
