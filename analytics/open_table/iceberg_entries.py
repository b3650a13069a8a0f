"""The entries of Iceberg's manifests, encoded and decoded in bulk.

pyiceberg calls a method for every byte of an entry and compresses each entry alone, which takes
0.2 ms. Ours differ in few values, so that their bytes are put together from few parts; and an
entry that is only moved to another manifest keeps its bytes.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Final, NamedTuple

from pydantic_core import to_json
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import resolve_writer
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import StructType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from analytics.model.schema import COLUMNS
from analytics.open_table.avro import (
    AvroReader,
    DamagedAvro,
    encoded_bytes,
    encoded_long,
    encoded_text,
    read_container,
    write_container,
)
from analytics.open_table.iceberg_schema import ICEBERG_SCHEMA, PARTITIONS
from analytics.open_table.storage_faults import StorageFailed
from analytics.storage.segment_metadata import Segment

ADDED: Final = ManifestEntryStatus.ADDED.value
EXISTING: Final = ManifestEntryStatus.EXISTING.value
DELETED: Final = ManifestEntryStatus.DELETED.value

_FORMAT_VERSION: Final[TableVersion] = 2
_SCHEMA_KEY: Final = "avro.schema"
_IDS: Final = {column.name: column.field_id for column in COLUMNS}


def _data_file_type(version: TableVersion) -> StructType:
    return data_file_with_partition(PARTITIONS.partition_type(ICEBERG_SCHEMA), version)


_AVRO_SCHEMA: Final = json.dumps(
    AvroSchemaConversion().iceberg_to_avro(
        manifest_entry_schema_with_data_file(_FORMAT_VERSION, _data_file_type(_FORMAT_VERSION)),
        schema_name="manifest_entry",
    )
).encode()

_NULL: Final = encoded_long(0)
_PRESENT: Final = encoded_long(1)
"""The branch of an optional value that is there."""

_TWO: Final = _PRESENT + encoded_long(2)
"""The beginning of an optional map with two keys."""

_END: Final = encoded_long(0)
_SEQ: Final = encoded_long(_IDS["seq"])
_CREATED_AT: Final = encoded_long(_IDS["created_at"])
_ROWS_ONLY: Final = encoded_long(0)
"""The content of a data file that deletes nothing."""

_PARQUET: Final = encoded_text("PARQUET")
_NO_NULLS: Final = _TWO + _SEQ + encoded_long(0) + _CREATED_AT + encoded_long(0) + _END
_REST: Final = _NULL * 4
"""No key_metadata, split_offsets, equality_ids and sort_order_id."""


class Entry(NamedTuple):
    """A data file in a manifest. `day` counts since 1970; `data_file` is its record in Avro.

    The sequence numbers are None in an entry that is written by the snapshot that adds it.
    """

    status: int
    snapshot_id: int
    sequence_number: int | None
    file_sequence_number: int | None
    uri: str
    tenant_id: str
    day: int
    rows: int
    size: int
    data_file: bytes


def new_entry(segment: Segment, uri: str, snapshot_id: int) -> Entry:
    """The entry that adds the file of `segment` at `uri`, from what the catalog knows.

    Its partition is the tenant and the day. Bounds are those of `seq` and `created_at`, which the
    catalog has; the file has statistics of these, of `event` and of `decision`.
    """
    day = date_to_days(segment.day)
    rows = encoded_long(segment.rows)
    data_file = b"".join(
        (
            _ROWS_ONLY,
            encoded_text(uri),
            _PARQUET,
            _PRESENT,
            encoded_text(segment.tenant_id),
            encoded_long(day),
            rows,
            encoded_long(segment.size),
            _counts(rows),
            _bounds(segment.min_seq, segment.min_created_at),
            _bounds(segment.max_seq, segment.max_created_at),
            _REST,
        )
    )
    return Entry(
        ADDED,
        snapshot_id,
        None,
        None,
        uri,
        segment.tenant_id,
        day,
        segment.rows,
        segment.size,
        data_file,
    )


def _counts(rows: bytes) -> bytes:
    """No column_sizes; value_counts, null_value_counts; no nan_value_counts."""
    return b"".join((_NULL, _TWO, _SEQ, rows, _CREATED_AT, rows, _END, _NO_NULLS, _NULL))


def _bounds(seq: int, created_at: datetime) -> bytes:
    return b"".join((_TWO, _SEQ, _bound(seq), _CREATED_AT, _bound_of(created_at), _END))


def _bound(value: int) -> bytes:
    return encoded_bytes(value.to_bytes(8, "little", signed=True))


def _bound_of(instant: datetime) -> bytes:
    return _bound(datetime_to_micros(instant))


_NO_BOUNDS: Final = _bounds(0, datetime.fromtimestamp(0, UTC))
_BOUNDS_BYTES: Final = len(_NO_BOUNDS)
_BOUNDS_FIXED: Final = [
    *((place, byte) for place, byte in enumerate(_NO_BOUNDS) if byte),
    (_BOUNDS_BYTES - 1, _END[0]),
]
"""The bytes that all bounds have in common, and their places."""


def encode_manifest(entries: Sequence[Entry], schema: Schema) -> bytes:
    """The file of a manifest with `entries`, for a table of `schema`."""
    metadata = {
        "schema": schema.model_dump_json().encode(),
        "partition-spec": to_json(PARTITIONS.fields),
        "partition-spec-id": str(PARTITIONS.spec_id).encode(),
        "format-version": str(_FORMAT_VERSION).encode(),
        "content": b"data",
        _SCHEMA_KEY: _AVRO_SCHEMA,
    }
    return write_container(metadata, len(entries), b"".join(map(_encoded, entries)))


def _encoded(entry: Entry) -> bytes:
    return b"".join(
        (
            encoded_long(entry.status),
            _PRESENT,
            encoded_long(entry.snapshot_id),
            _optional(entry.sequence_number),
            _optional(entry.file_sequence_number),
            entry.data_file,
        )
    )


def _optional(value: int | None) -> bytes:
    return _NULL if value is None else _PRESENT + encoded_long(value)


def live_entries(manifest: ManifestFile, content: bytes, io: FileIO) -> list[Entry]:
    """The entries of `manifest`, whose file has `content`, but those that it deletes.

    What they inherit from the manifest is filled in. `io` reads a manifest that was not encoded
    like ours.
    """
    own = _decoded(manifest, content)
    entries = _decoded_by_pyiceberg(manifest, io) if own is None else own
    number = manifest.sequence_number
    return [
        entry
        if entry.sequence_number is not None
        else entry._replace(sequence_number=number, file_sequence_number=number)
        for entry in entries
        if entry.status != DELETED
    ]


def _decoded(manifest: ManifestFile, content: bytes) -> list[Entry] | None:
    """None for the manifest of another program. Raises StorageFailed for a damaged one of ours."""
    try:
        metadata, blocks = read_container(content)
    except DamagedAvro:
        return None
    if metadata.get(_SCHEMA_KEY) != _AVRO_SCHEMA:
        return None
    try:
        return [
            _entry(reader, manifest.added_snapshot_id or 0)
            for count, reader in blocks
            for _ in range(count)
        ]
    except (DamagedAvro, IndexError, ValueError, zlib.error) as error:
        raise StorageFailed(f"{manifest.manifest_path}: the manifest is damaged") from error


def _entry(reader: AvroReader, added_snapshot_id: int) -> Entry:
    status = reader.long()
    snapshot_id = reader.optional_long()
    number, file_number = reader.optional_long(), reader.optional_long()
    start = reader.position
    reader.long()  # content
    uri = reader.bytes().decode()
    reader.bytes()  # file_format
    tenant_id = reader.bytes().decode() if reader.long() else ""
    day, rows, size = reader.long(), reader.long(), reader.long()
    if not _is_past_our_statistics(reader, rows):
        _skip_statistics(reader)
    return Entry(
        status,
        added_snapshot_id if snapshot_id is None else snapshot_id,
        number,
        file_number,
        uri,
        tenant_id,
        day,
        rows,
        size,
        reader.since(start),
    )


def _is_past_our_statistics(reader: AvroReader, rows: int) -> bool:
    """Skip what follows the size of a file if it is as `new_entry` writes it; False if it is not.

    A table has as many entries as files, and this takes a fifth of the time.
    """
    counts = _counts(encoded_long(rows))
    tail = reader.peek(len(counts) + 2 * _BOUNDS_BYTES + len(_REST))
    bounds = tail[len(counts) : len(counts) + 2 * _BOUNDS_BYTES]
    is_ours = (
        tail.startswith(counts)
        and tail.endswith(_REST)
        and all(bounds[place::_BOUNDS_BYTES] == bytes([byte]) * 2 for place, byte in _BOUNDS_FIXED)
    )
    if is_ours:
        reader.position += len(tail)
    return is_ours


def _skip_statistics(reader: AvroReader) -> None:
    for skip_value in (*[reader.long] * 4, *[reader.bytes] * 2):
        reader.skip_map(skip_value)
    if reader.long():  # key_metadata
        reader.bytes()
    for _ in ("split_offsets", "equality_ids"):
        reader.skip_list(reader.long)
    reader.optional_long()  # sort_order_id


def _decoded_by_pyiceberg(manifest: ManifestFile, io: FileIO) -> Iterator[Entry]:
    writer = resolve_writer(
        record_schema=_data_file_type(DEFAULT_READ_VERSION),
        file_schema=_data_file_type(_FORMAT_VERSION),
    )
    for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
        file = entry.data_file
        encoded = BytesIO()
        writer.write(BinaryEncoder(encoded), file)
        yield Entry(
            entry.status.value,
            entry.snapshot_id or 0,
            entry.sequence_number,
            entry.file_sequence_number,
            file.file_path,
            file.partition[0] or "",
            file.partition[1],
            file.record_count,
            file.file_size_in_bytes,
            encoded.getvalue(),
        )
