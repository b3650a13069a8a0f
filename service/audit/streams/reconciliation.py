"""Records that a stream carries beside its rows, by which the receiver can tell that it has all."""

import base64
import hashlib
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

import msgspec

from analytics.model.filters import Query
from analytics.model.instants import format_us
from analytics.model.schema import audit_id
from service.audit.evidence.trees import last_checkpoint, log_name
from service.audit.streams.stored import RowReader
from service.store.tables import EvidenceTree, Stream

RECONCILIATION: Final = "stream_reconciliation"
ROWS_MAX: Final = 100_000
PARKED_MAX: Final = 100
_HOUR_S: Final = 3_600


def is_due(last_at: datetime, now: datetime, rows: int, parked: int) -> bool:
    """Whether a record is due: with each hour, and after many rows."""
    is_other_hour = last_at.timestamp() // _HOUR_S != now.timestamp() // _HOUR_S
    return is_other_hour or rows >= ROWS_MAX or parked >= PARKED_MAX


async def reconciliation(
    reader: RowReader,
    stream: Stream,
    query: Query,
    span: tuple[int, int],
    parked: Collection[str],
    now: datetime,
) -> bytes:
    """The record of the rows after the first seq up to the second, but for those `parked`.

    It is made of the log, and not of what was sent. `ids_sha256` is the digest of the ids, in their
    order and with a line feed between two. Raises StoreFault.
    """
    after, upto = span
    digest, count, seq = hashlib.sha256(), 0, after
    while seq < upto:
        rows, seq = await reader.after(stream.tenant_id, query, seq)
        ids = [audit_id(each) for each in rows["seq"].to_pylist() if each <= upto]
        for row_id in (each for each in ids if each not in parked):
            digest.update(f"\n{row_id}".encode() if count else row_id.encode())
            count += 1
    record = {
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
        "checkpoint": await _checkpoint(reader, stream.tenant_id),
    }
    return msgspec.json.encode(record)


async def _checkpoint(reader: RowReader, tenant_id: str) -> dict[str, Any] | None:
    """The organisation's last signed checkpoint."""
    async with reader.store.read() as session:
        tree = await session.get(EvidenceTree, tenant_id)
        last = await last_checkpoint(session, tenant_id)
    if tree is None or last is None:
        return None
    return {
        "origin": log_name(tree.origin, last.generation),
        "size": last.size,
        "root": base64.b64encode(last.root).decode(),
        "last_id": audit_id(last.last_seq),
    }
