"""Segments as Iceberg's data files, from what the catalog knows: no file is opened."""

from datetime import date, datetime
from pathlib import PurePosixPath
from typing import Final

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, TimestamptzType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from analytics.model.schema import COLUMNS
from analytics.storage.segment_metadata import Segment

_IDS: Final = {column.name: column.field_id for column in COLUMNS}


def data_file(segment: Segment, uri: str) -> DataFile:
    """The entry of a manifest for the file of `segment` at `uri`.

    Its partition is the tenant and the day. Bounds are those of `seq` and `created_at`, which the
    catalog has; for other columns readers use the statistics within the file.
    """
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(segment.tenant_id, _days(segment.day)),
        record_count=segment.rows,
        file_size_in_bytes=segment.size,
        column_sizes=None,
        value_counts={_IDS["seq"]: segment.rows, _IDS["created_at"]: segment.rows},
        null_value_counts={_IDS["seq"]: 0, _IDS["created_at"]: 0},
        nan_value_counts=None,
        lower_bounds=_bounds(segment.min_seq, segment.min_created_at),
        upper_bounds=_bounds(segment.max_seq, segment.max_created_at),
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        key_metadata=None,
    )
    file.spec_id = 0
    return file


def days_of(uri: str) -> int:
    """The day of the segment whose file is at `uri`, counted since 1970."""
    return _days(date.fromisoformat(PurePosixPath(uri).parent.name.removeprefix("day=")))


def _days(day: date) -> int:
    return date_to_days(day)


def _bounds(seq: int, created_at: datetime) -> dict[int, bytes]:
    return {
        _IDS["seq"]: to_bytes(LongType(), seq),
        _IDS["created_at"]: to_bytes(TimestamptzType(), datetime_to_micros(created_at)),
    }
