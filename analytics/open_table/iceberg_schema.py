"""The audit table as Iceberg has it: columns, partitions and properties."""

from typing import Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, TimestamptzType

from analytics.model.schema import AUDIT_SCHEMA, COLUMNS, SCHEMA_VERSION
from analytics.open_table.table_format import TENANT_COLUMN

TENANT_ID: Final = 10_000
"""The field id of the tenant: far above those of stored columns, which grow."""

_TENANT_PARTITION: Final = 1_000
_DAY_PARTITION: Final = 1_001

_TYPES: Final[dict[pa.DataType, IcebergType]] = {
    pa.int64(): LongType(),
    pa.string(): StringType(),
    AUDIT_SCHEMA.field("created_at").type: TimestamptzType(),
}


ICEBERG_SCHEMA: Final = Schema(
    *(
        NestedField(column.field_id, column.name, _TYPES[column.type], column.is_required)
        for column in COLUMNS
    ),
    # Not required: readers that fill missing columns with null before they look at partitions
    # would refuse the file.
    NestedField(TENANT_ID, TENANT_COLUMN, StringType(), required=False),
    schema_id=SCHEMA_VERSION,
)
"""The columns of files under the field ids that are stored in them, and the tenant."""

PARTITIONS: Final = PartitionSpec(
    PartitionField(
        source_id=TENANT_ID,
        field_id=_TENANT_PARTITION,
        transform=IdentityTransform(),
        name=TENANT_COLUMN,
    ),
    PartitionField(
        source_id=AUDIT_SCHEMA.get_field_index("created_at") + 1,
        field_id=_DAY_PARTITION,
        transform=DayTransform(),
        name="created_at_day",
    ),
    spec_id=0,
)
"""By tenant and UTC day, as files are; a reader's filter on `created_at` selects days."""

PROPERTIES: Final = {
    # Spark's vectorized reader knows none of the encodings that differ from row to row.
    "read.parquet.vectorization.enabled": "false",
    # Files of schema version 1 have no field ids: their columns are found by name.
    "schema.name-mapping.default": ICEBERG_SCHEMA.name_mapping.model_dump_json(),
    # Only the publisher commits, from the version that it has read.
    "commit.retry.num-retries": "0",
}
