"""The audit log: journal, catalog of segments, imports and exports."""

from datetime import date, datetime

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base, partial_index


class JournalEntry(Base):
    """A batch of audit rows of one tenant and day that is not yet in a segment.

    `size` is the memory its rows take, in bytes. Batches older than these columns have size 0 and
    no bounds of `created_at`. `damage` is what was wrong with the batch when it was last verified.
    """

    __tablename__ = "journal"
    # Covering index: a tenant's journal is counted without reading its batches.
    __table_args__ = (Index("journal_by_day", "tenant_id", "day", "rows", "size"),)

    first_seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    day: Mapped[date]
    rows: Mapped[int]
    size: Mapped[int] = mapped_column(default=0, server_default="0")
    min_created_at: Mapped[datetime | None]
    max_created_at: Mapped[datetime | None]
    received_at: Mapped[datetime]
    data: Mapped[bytes]
    damage: Mapped[str | None]


class MisdatedDay(Base):
    """A tenant's day with rows that a clock which was far behind dated before they were received.

    `received_at` is that of the last of them. They are kept as long as rows of that instant.
    """

    __tablename__ = "misdated_days"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    received_at: Mapped[datetime]


class IdempotencyKey(Base):
    """The stored answer to a repeatable request."""

    __tablename__ = "idempotency_keys"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    credential: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    answer: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(index=True)


class SegmentEntry(Base):
    """The catalog's line for one Parquet file. Retired files stay listed until unlinked.

    Only `retired_at` and the columns of indexes, verification and locks ever change. `sha256` is
    the digest of the file; null in lines older than the column. `index_size` and `index_sha256`
    describe the index file, null until it is built, and `index_version` its format, null in lines
    older than that column. `verified_at` is when the stored file was last compared with `sha256`
    (null: not since it was written), `damage` what was wrong then. `locked_until` is the end of the
    object lock on the file, null before there was one, and `lock_held_at` when a legal hold was
    put on it in the bucket, null without one.
    """

    __tablename__ = "segments"
    # Covering index: a snapshot lists the ids of a tenant's live segments from it alone.
    __table_args__ = (Index("segments_by_day", "tenant_id", "retired_at", "day", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    day: Mapped[date]
    rows: Mapped[int]
    size: Mapped[int]
    min_created_at: Mapped[datetime]
    max_created_at: Mapped[datetime]
    min_seq: Mapped[int]
    max_seq: Mapped[int]
    event_counts: Mapped[dict[str, int]]
    decision_counts: Mapped[dict[str, int]]
    seq_base: Mapped[int] = mapped_column(default=0, server_default="0")
    schema_version: Mapped[int] = mapped_column(default=1, server_default="1")
    sha256: Mapped[str | None]
    index_size: Mapped[int | None]
    index_sha256: Mapped[str | None]
    index_version: Mapped[int | None]
    sealed_at: Mapped[datetime]
    retired_at: Mapped[datetime | None]
    verified_at: Mapped[datetime | None]
    damage: Mapped[str | None]
    locked_until: Mapped[datetime | None]
    lock_held_at: Mapped[datetime | None]


class LostSegment(Base):
    """A segment that the operator gave up: its file was damaged or missing, and there is no copy.

    It is retired, and this line stays until its day is past retention, so that all who read the day
    are told that rows of it are missing: they had seq in `min_seq` to `max_seq`. `damage` is the
    kind of what was wrong.
    """

    __tablename__ = "lost_segments"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    day: Mapped[date]
    rows: Mapped[int]
    min_seq: Mapped[int]
    max_seq: Mapped[int]
    damage: Mapped[str]
    lost_at: Mapped[datetime]

    def touches(self, first: int, end: int) -> bool:
        """Whether rows with seqs from `first` to before `end` may be among them."""
        return self.min_seq < end and self.max_seq >= first

    @property
    def detail(self) -> str:
        """What was lost, but for where."""
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
        return (
            f"{rows} (seq {self.min_seq} to {self.max_seq}), given up at {self.lost_at:%F %T} UTC"
        )


class ImportedFile(Base):
    """A file imported into an organisation, identified by the digest of its bytes."""

    __tablename__ = "imported_files"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    rows: Mapped[int]
    refused: Mapped[int]
    imported_at: Mapped[datetime]


class ExportEntry(Base):
    """One export of audit rows: what was asked for, and what became of it.

    Written in the transactions of its audit rows. `filters` are as given; `since` and `until` are
    the bounds that applied, the retention floor included (null: none). `rows` were counted before
    the first byte, no row after seq `watermark` among them. `sent_rows` and `sent_bytes` are
    updated every few seconds, at `progress_at`, until `ended_at`; `is_complete` and `sha256`, the
    digest of the file, come with the end; so do the last `checkpoint` (a signed note) and the id of
    the key that signed it, if the organisation has one.
    """

    __tablename__ = "exports"
    __table_args__ = (Index("exports_newest_first", "tenant_id", "started_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    actor: Mapped[str]
    actor_source: Mapped[str]
    verdict_source: Mapped[str]
    request_id: Mapped[str | None]
    format: Mapped[str]
    compression: Mapped[str | None]
    is_raw: Mapped[bool]
    filters: Mapped[dict[str, list[str]]]
    since: Mapped[datetime | None]
    until: Mapped[datetime | None]
    retention_floor: Mapped[datetime | None]
    watermark: Mapped[int]
    rows: Mapped[int]
    version: Mapped[str]
    started_at: Mapped[datetime]
    progress_at: Mapped[datetime]
    sent_rows: Mapped[int] = mapped_column(default=0)
    sent_bytes: Mapped[int] = mapped_column(default=0)
    ended_at: Mapped[datetime | None]
    is_complete: Mapped[bool | None]
    sha256: Mapped[str | None]
    checkpoint: Mapped[str | None]
    checkpoint_key_id: Mapped[str | None]


partial_index("exports_under_way", ExportEntry.ended_at.is_(None), ExportEntry.progress_at)
partial_index("damaged_segments", SegmentEntry.damage.is_not(None), SegmentEntry.tenant_id)
partial_index("damaged_batches", JournalEntry.damage.is_not(None), JournalEntry.tenant_id)


class Counter(Base):
    """A number that only grows, such as the last allocated `seq`.

    `received_at` is the instant of the last rows that were numbered; null before the first ones.
    """

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]
    received_at: Mapped[datetime | None]


class Fact(Base):
    """A fact that stored rows depend on, such as the slot rule they were written under."""

    __tablename__ = "facts"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Lease(Base):
    """The process that currently may change segments. Each new holder gets a higher epoch."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    epoch: Mapped[int]
    expires_at: Mapped[datetime]


class LakeTable(Base):
    """An open table over the segments, as it was last published.

    `tenant_id` is empty for the operator's table, which has all organisations. `version` is its
    current one (see `analytics.open_table.table_format`), `complete_through_seq` what that says.
    """

    __tablename__ = "lake_tables"

    format: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    location: Mapped[str]
    version: Mapped[str]
    snapshot: Mapped[str | None]
    snapshots: Mapped[int]
    files: Mapped[int]
    rows: Mapped[int]
    complete_through_seq: Mapped[int]
    created_at: Mapped[datetime]
    published_at: Mapped[datetime]


class IcebergCatalogEntry(Base):
    """The current metadata file of an Iceberg table, as Iceberg's SQL catalogs store it.

    Table and columns are those of pyiceberg's SqlCatalog and of Java's JdbcCatalog.
    """

    __tablename__ = "iceberg_tables"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str | None] = mapped_column(String(1000))
    previous_metadata_location: Mapped[str | None] = mapped_column(String(1000))
    iceberg_type: Mapped[str | None] = mapped_column(String(5))


class IcebergNamespaceProperty(Base):
    """A namespace of those catalogs."""

    __tablename__ = "iceberg_namespace_properties"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_value: Mapped[str | None] = mapped_column(String(1000))
