"""Journal batches: rows of one tenant and one UTC day as Arrow IPC bytes.

A batch is encoded before its rows have a `seq`; the commit that stores it gives it a first one
and its rows count up from there. Its number of columns tells its schema version.

The commit also adds a checksum, of the bytes and of what the batch's line says of them, behind the
Arrow stream, where readers that do not know of it do not look.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.errors import StoreFault
from analytics.model.instants import utc_day
from analytics.model.rows import AuditRow
from analytics.model.schema import (
    AUDIT_SCHEMA,
    JOURNAL_SCHEMA,
    JOURNAL_SCHEMAS,
    NO_ROWS,
    NewerSchema,
    to_table,
    with_nulls,
    with_received_at,
)

# Handing each buffer to Arrow's threads takes longer than compressing it, in a batch of any size.
_WRITE_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)


_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow stream, and so of batches that were stored without a checksum."""

_CHECKSUM: Final = struct.Struct("<4sI")
_MARK: Final = b"CSJB"
_REMEDY: Final = "restore the database from a backup"
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CorruptBatch(StoreFault):
    """Journal bytes that do not decode to the rows they should hold."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Rows of one day, ready for the journal but without their seq.

    `size` is what they take in memory, in bytes (0: stored before that was counted); `data` is
    their Arrow IPC stream, followed by a checksum once it is stored. No row is older than
    `min_created_at` or newer than `max_created_at`.
    """

    day: date
    rows: int
    size: int
    min_created_at: datetime
    max_created_at: datetime
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalBatch(EncodedBatch):
    """One stored batch: `rows` rows whose seq run from `first_seq` upwards.

    All of them were received at `received_at`, the time of the transaction that gave them their
    seq; so no row with a later seq was received earlier. None: each row says when.
    """

    tenant_id: str = ""
    first_seq: int
    received_at: datetime | None = None

    @property
    def min_seq(self) -> int:
        """The seq of its first row."""
        return self.first_seq

    @property
    def max_seq(self) -> int:
        """The seq of its last row."""
        return self.first_seq + self.rows - 1

    @property
    def place(self) -> str:
        """The batch, for messages."""
        return (
            f"journal batch of {self.tenant_id} on {self.day}, seq {self.min_seq} to {self.max_seq}"
        )


def split_by_day(rows: Iterable[AuditRow]) -> dict[date, list[AuditRow]]:
    """`rows` by the UTC day of their `created_at`, order kept within a day."""
    days: dict[date, list[AuditRow]] = {}
    for row in rows:
        days.setdefault(utc_day(row.created_at), []).append(row)
    return days


def encode_days(rows: Iterable[AuditRow]) -> list[EncodedBatch]:
    """`rows` as one batch for each UTC day they fall on."""
    return [encode_day(day, day_rows) for day, day_rows in split_by_day(rows).items()]


def encode_day(day: date, rows: list[AuditRow]) -> EncodedBatch:
    """`rows`, at least one and all of UTC `day`, as a batch."""
    table = to_table(rows)
    size = table.get_total_buffer_size()
    # Not by Arrow: of the few rows of a commit it takes a quarter of the time of encoding them.
    instants = [row.created_at for row in rows]
    return EncodedBatch(day, len(rows), size, min(instants), max(instants), _encode(table))


def _encode(rows: pa.Table) -> bytes:
    """`rows` as an Arrow IPC stream of JOURNAL_SCHEMA, lz4-compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, JOURNAL_SCHEMA, options=_WRITE_OPTIONS) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def with_checksum(batch: JournalBatch) -> JournalBatch:
    """`batch` as it is stored."""
    checksum = _CHECKSUM.pack(_MARK, _checksum(batch, batch.data))
    return replace(batch, data=batch.data + checksum)


def _checksum(batch: JournalBatch, stream: bytes) -> int:
    """The checksum of the batch's `stream` and line: moved to another line, it differs, too."""
    line = (
        batch.tenant_id,
        batch.day.toordinal(),
        batch.rows,
        batch.size,
        batch.first_seq,
        *map(_microseconds, (batch.min_created_at, batch.max_created_at, batch.received_at)),
    )
    return zlib.crc32(stream, zlib.crc32(repr(line).encode()))


def _microseconds(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _EPOCH) // _MICROSECOND


def _has_checksum(batch: JournalBatch) -> bool:
    return not batch.data.endswith(_END_OF_STREAM)


def _compare_checksum(batch: JournalBatch) -> None:
    stream, stored = batch.data[: -_CHECKSUM.size], batch.data[-_CHECKSUM.size :]
    if stored != _CHECKSUM.pack(_MARK, _checksum(batch, stream)):
        raise CorruptBatch(f"{batch.place}: its checksum differs: {_REMEDY}")


def intact(
    batches: Iterable[JournalBatch],
) -> tuple[list[JournalBatch], list[CorruptBatch]]:
    """Those of `batches` that are what was stored, and the faults of the others.

    Those from before checksums are decoded. Raises NewerSchema.
    """
    whole: list[JournalBatch] = []
    faults: list[CorruptBatch] = []
    for batch in batches:
        try:
            if _has_checksum(batch):
                _compare_checksum(batch)
            else:
                decode_batch(batch)
        except CorruptBatch as fault:
            faults.append(fault)
        else:
            whole.append(batch)
    return whole, faults


def decode_batch(batch: JournalBatch) -> pa.Table:
    """The rows of `batch` as an AUDIT_SCHEMA table. Raises CorruptBatch, NewerSchema."""
    if _has_checksum(batch):
        _compare_checksum(batch)
    try:
        with pa.ipc.open_stream(batch.data, options=_READ_OPTIONS) as reader:
            rows = reader.read_all()
        stored = JOURNAL_SCHEMAS.get(len(rows.schema), JOURNAL_SCHEMA)
        is_as_stored = rows.num_rows == batch.rows and rows.schema.equals(stored)
        if is_as_stored:
            rows.validate(full=True)  # following an offset out of its buffer crashes the process
    except (pa.ArrowException, OSError) as error:
        raise CorruptBatch(f"{batch.place}: it does not decode: {_REMEDY}") from error
    if _is_newer(rows.schema):
        # Rows of a newer node are whole: an old node must not report them as damaged.
        raise NewerSchema(batch.place)
    if not is_as_stored:
        raise CorruptBatch(f"{batch.place}: it is not what was stored: {_REMEDY}")
    seq = pa.array(range(batch.first_seq, batch.first_seq + batch.rows), pa.int64())
    rows = with_nulls(rows, JOURNAL_SCHEMA)
    if batch.received_at is not None:
        rows = with_received_at(rows, batch.received_at)
    return rows.add_column(0, AUDIT_SCHEMA.field("seq"), seq)


def _is_newer(schema: pa.Schema) -> bool:
    """True if `schema` has all columns of this version and more after them."""
    own = len(JOURNAL_SCHEMA)
    return len(schema) > own and pa.schema(list(schema)[:own]).equals(JOURNAL_SCHEMA)


def oldest_row(batches: Iterable[JournalBatch]) -> datetime:
    """The earliest `created_at` in `batches`, at least one. Raises CorruptBatch."""
    columns = (decode_batch(batch).column("created_at") for batch in batches)
    oldest: datetime = min(pc.min(column).as_py() for column in columns)
    return oldest


@dataclass(frozen=True, slots=True)
class JournalPart:
    """Batches of one tenant and day that become the segment `segment_id`."""

    tenant_id: str
    day: date
    segment_id: str
    batches: list[JournalBatch]


def in_parts(
    batches: Iterable[JournalBatch], rows_max: int, bytes_max: int
) -> list[list[JournalBatch]]:
    """`batches` in runs of at most `rows_max` rows and, decoded, `bytes_max` bytes (or one batch).

    Raises CorruptBatch for a batch that has to be decoded to learn its size.
    """
    parts: list[list[JournalBatch]] = []
    rows = size = 0
    for batch in batches:
        # The stored bytes are no measure: repeated text compresses to next to nothing.
        decoded = batch.size or decode_batch(batch).nbytes
        if not parts or rows + batch.rows > rows_max or size + decoded > bytes_max:
            parts.append([])
            rows = size = 0
        parts[-1].append(batch)
        rows, size = rows + batch.rows, size + decoded
    return parts


def decode_batches(batches: Iterable[JournalBatch]) -> pa.Table:
    """The rows of all `batches` as one AUDIT_SCHEMA table, in the order given."""
    return pa.concat_tables([NO_ROWS, *map(decode_batch, batches)])
