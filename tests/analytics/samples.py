"""Sample rows, and a small audit folder that seals and journals what it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.cache.results import ResultCache
from analytics.cache.row_groups import Decoded
from analytics.model.rows import AuditRow, VerdictSource
from analytics.model.schema import AUDIT_SCHEMA, COLUMNS, schema_of
from analytics.query.engine import Engine, EngineLimits
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.query.scans import Resources
from analytics.statistics.value_index import ValueIndex
from analytics.storage.file_copy import sha256_of
from analytics.storage.journal_batches import JournalBatch, decode_batch, encode_day, split_by_day
from analytics.storage.reindex import reindex
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder
from analytics.storage.segment_writer import write_segment
from analytics.storage.snapshot import Snapshot

DAY = date(2026, 3, 4)
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
TENANT = "org_acme"
DECODED_BYTES = 64 * 2**20
LIMITS = EngineLimits(memory_mb=256, temp_mb=64, threads=2)


def sample_row(created_at: datetime = NOON, **changes: Any) -> AuditRow:
    """A blocked install with every optional column filled, and `changes`."""
    row = AuditRow(
        created_at=created_at,
        received_at=created_at,
        event="blocklist_hit",
        package_name="left-pad",
        version="1.3.0",
        decision="BLOCKED",
        decision_reason='{"rule_id":"r1","source":"osv"}',
        verdict_source=VerdictSource.PROXY,
        actor_tenant_id=None,
        actor="key_1",
        actor_source="api_key",
        subject="repo:acme/payments",
        oidc_binding_id="obind_1",
        request_id="req_1",
        source_ip="192.0.2.7",
        payload='{"rule_id":"r1","source":"osv"}',
        ecosystem="npm",
        repository_id="123456789",
        run_id="9876543210",
        token_id="6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
        file_name="left-pad-1.3.0.tgz",
        file_sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        client="npm/11.19.1",
    )
    return msgspec.structs.replace(row, **changes)


def batch_of(rows: Sequence[AuditRow], first_seq: int = 1, day: date | None = None) -> JournalBatch:
    """`rows` as the journal holds them."""
    encoded = encode_day(day or rows[0].created_at.date(), list(rows))
    values = {one.name: getattr(encoded, one.name) for one in fields(encoded)}
    return JournalBatch(**values, first_seq=first_seq)


def table_of(rows: Sequence[AuditRow], first_seq: int = 1) -> pa.Table:
    """`rows` as an AUDIT_SCHEMA table, seq counting up from `first_seq`."""
    return decode_batch(batch_of(rows, first_seq))


def table_by_seq(rows: Mapping[int, AuditRow], seq_base: int = 0) -> pa.Table:
    """The same of rows of one day with these seqs, which may have gaps, less `seq_base`."""
    seqs = pa.array([seq - seq_base for seq in rows], AUDIT_SCHEMA.field("seq").type)
    return table_of(list(rows.values())).set_column(0, AUDIT_SCHEMA.field("seq"), seqs)


def sealed(root: Path, segment_id: str, rows: Sequence[AuditRow], first_seq: int = 1) -> Segment:
    """`rows`, all of one day, as a segment of TENANT."""
    day = rows[0].created_at.date()
    return write_segment(root, TENANT, day, segment_id, table_of(rows, first_seq))


def as_of_version_1(rows: Sequence[AuditRow]) -> list[AuditRow]:
    """`rows` with null in every column that came later."""
    later = dict.fromkeys(column.name for column in COLUMNS if column.since > 1)
    return [msgspec.structs.replace(row, **later) for row in rows]


def sealed_by_version_1(root: Path, segment: Segment) -> Segment:
    """`segment` once its file is one of schema version 1: fewer columns, no ids, no version."""
    table = pq.read_table(segment.path(root), partitioning=None).cast(AUDIT_SCHEMA)
    table = table.select(schema_of(1, "a segment").names)
    pq.write_table(table, segment.path(root), compression="zstd")
    size = segment.path(root).stat().st_size
    sha256 = sha256_of(segment.path(root))
    return reindex(root, replace(segment, size=size, sha256=sha256, schema_version=1))


def journalled_by_version_1(batch: JournalBatch) -> JournalBatch:
    """`batch` as schema version 1 had it."""
    rows = pa.ipc.open_stream(batch.data).read_all().select(schema_of(1, "a batch").names[1:])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return replace(batch, data=bytes(sink.getvalue()))


@dataclass
class SampleLake:
    """An audit folder with one tenant: rows go in sealed or journalled, and are read back."""

    root: Path
    reader: Reader
    segments: list[Segment] = field(default_factory=list)
    batches: list[JournalBatch] = field(default_factory=list)
    last_seq: int = 0

    def add(self, rows: Sequence[AuditRow], *, is_sealed: bool) -> dict[int, AuditRow]:
        """Accept `rows`; the seq each of them got.

        Every third file counts from 0, and its rows were received a minute after the last of them;
        every fourth file or batch is of schema version 1.
        """
        accepted: dict[int, AuditRow] = {}
        for day, day_rows in split_by_day(rows).items():
            first = self.last_seq + 1
            is_old = (len(self.segments) + len(self.batches)) % 4 == 3
            if is_sealed:
                base = first if len(self.segments) % 3 == 2 else 0
                table = table_of(day_rows, first - base)
                segment = write_segment(self.root, TENANT, day, f"seg_{first}", table)
                segment = sealed_by_version_1(self.root, segment) if is_old else segment
                if base:
                    received_at = max(row.received_at for row in day_rows) + timedelta(minutes=1)
                    segment = segment.with_seq_base(base, received_at)
                    day_rows = [
                        msgspec.structs.replace(row, received_at=received_at) for row in day_rows
                    ]
                self.segments.append(segment)
            else:
                batch = batch_of(day_rows, first)
                self.batches.append(journalled_by_version_1(batch) if is_old else batch)
            self.last_seq += len(day_rows)
            day_rows = as_of_version_1(day_rows) if is_old else day_rows
            accepted |= dict(enumerate(day_rows, start=first))
        return accepted

    def snapshot(self) -> Snapshot:
        return Snapshot(TENANT, self.last_seq, tuple(self.segments), tuple(self.batches))


def open_lake(folder: Path) -> SampleLake:
    """An empty SampleLake below `folder`; the caller closes `lake.reader.resources.engine`."""
    root = folder / "audit"
    temp = folder / "tmp"
    root.mkdir()
    temp.mkdir()
    segments = LocalFolder(root)
    decoded, results = Decoded(segments, DECODED_BYTES), ResultCache(DECODED_BYTES)
    reader = Reader(
        Planner(ValueIndex(segments, DECODED_BYTES), decoded, results),
        Resources(Engine(root, temp, LIMITS), segments, decoded, results),
    )
    return SampleLake(root, reader)
