"""The database's record of published tables, how far they are behind, and Iceberg's catalog."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

from sqlalchemy import and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.open_table.table_format import FormatName, TableHead, TableOvertaken
from analytics.storage.segment_metadata import Segment
from service.audit.open_table.places import ALL_TENANTS, TableKey
from service.store.catalog import LiveSegment, list_live
from service.store.journal import SEQ
from service.store.tables import (
    Counter,
    IcebergCatalogEntry,
    IcebergNamespaceProperty,
    JournalEntry,
    LakeTable,
    SegmentEntry,
)

CATALOG: Final = "countersign"
NAMESPACE: Final = "countersign"
"""The names by which SQL catalogs of pyiceberg and Java find the tables."""

_TYPE: Final = "TABLE"
_IS_OURS: Final = and_(
    IcebergCatalogEntry.catalog_name == CATALOG, IcebergCatalogEntry.table_namespace == NAMESPACE
)


@dataclass(frozen=True, slots=True)
class LakeState:
    """What should be published, as of one read transaction.

    `live` maps each tenant to its segments, `journal` each tenant with rows that are not sealed to
    the first seq of these. `versions` are the current ones by the catalog.
    """

    live: dict[str, list[LiveSegment]]
    journal: dict[str, int]
    last_seq: int
    last_retired_at: datetime | None
    tables: dict[TableKey, LakeTable]
    versions: dict[TableKey, str] = field(default_factory=dict)

    def live_of(self, key: TableKey) -> Iterable[LiveSegment]:
        """The segments whose rows belong in the table."""
        if key.tenant_id == ALL_TENANTS:
            return chain.from_iterable(self.live.values())
        return self.live.get(key.tenant_id, ())

    def is_fenced(self, key: TableKey) -> bool:
        """False if a segment was retired since the table's last publication.

        A publication that began before, in a process that has lost its lease since, could name
        that segment. One more snapshot refuses it.
        """
        line = self.tables.get(key)
        if line is None or self.last_retired_at is None:
            return True
        # Not `>=`: which of two events of one instant came first is not known.
        return line.published_at > self.last_retired_at

    def complete_through(self, key: TableKey, absent: Collection[Segment]) -> int:
        """The highest seq up to which every row of the table's tenants is in the table.

        Rows are missing from it that are not sealed, and those of its segments that are `absent`.
        """
        journal = [first for tenant_id, first in self.journal.items() if key.has(tenant_id)]
        missing = [*journal, *(segment.min_seq for segment in absent)]
        return min(missing, default=self.last_seq + 1) - 1


async def read_state(session: AsyncSession) -> LakeState:
    """Everything that a publication depends on."""
    journal = await session.execute(
        select(JournalEntry.tenant_id, func.min(JournalEntry.first_seq)).group_by(
            JournalEntry.tenant_id
        )
    )
    last_seq = await session.scalar(select(Counter.value).where(Counter.name == SEQ))
    tables = await list_tables(session)
    return LakeState(
        live=await list_live(session),
        journal=dict(journal.all()),
        last_seq=last_seq or 0,
        last_retired_at=await session.scalar(select(func.max(SegmentEntry.retired_at))),
        tables=tables,
        versions=await list_versions(session, tables),
    )


async def list_tables(session: AsyncSession) -> dict[TableKey, LakeTable]:
    """All tables that are published."""
    lines = await session.scalars(select(LakeTable).order_by(LakeTable.format, LakeTable.tenant_id))
    return {TableKey(FormatName(line.format), line.tenant_id): line for line in lines}


async def list_versions(
    session: AsyncSession, tables: dict[TableKey, LakeTable]
) -> dict[TableKey, str]:
    """The current version of each table; that of an Iceberg table is what its catalog names."""
    lines = await session.execute(
        select(IcebergCatalogEntry.table_name, IcebergCatalogEntry.metadata_location).where(
            _IS_OURS
        )
    )
    named = dict(lines.all())
    return {
        key: named.get(key.name) or line.version
        if key.format is FormatName.ICEBERG
        else line.version
        for key, line in tables.items()
    }


async def set_head(
    session: AsyncSession,
    key: TableKey,
    location: str,
    before: str | None,
    head: TableHead,
    rows: int,
    at: datetime,
) -> None:
    """Make `head` the current version of the table in place of version `before` (None: a new one).

    Raises TableOvertaken if another one is current: then nothing may be committed.
    """
    # A Delta table's log has refused a second commit with this number already.
    if key.format is FormatName.ICEBERG:
        await _set_metadata(session, key, before, head.version)
    line = await session.get(LakeTable, (key.format.value, key.tenant_id))
    if line is None or before is None:
        if line is not None:
            await session.delete(line)
            await session.flush()
        line = LakeTable(format=key.format.value, tenant_id=key.tenant_id, created_at=at)
        session.add(line)
    line.location = location
    line.version = head.version
    line.snapshot = head.snapshot
    line.snapshots = head.snapshots
    line.files = len(head.files)
    line.rows = rows
    line.complete_through_seq = head.complete_through_seq
    line.published_at = at
    await session.flush()


async def _set_metadata(
    session: AsyncSession, key: TableKey, before: str | None, after: str
) -> None:
    is_table = and_(_IS_OURS, IcebergCatalogEntry.table_name == key.name)
    if before is None:
        namespace = {"catalog_name": CATALOG, "namespace": NAMESPACE}
        exists = {"property_key": "exists", "property_value": "true"}
        await session.merge(IcebergNamespaceProperty(**namespace, **exists))
        # The entry of a former table, whose metadata is gone or elsewhere.
        await session.execute(delete(IcebergCatalogEntry).where(is_table))
        await session.execute(
            insert(IcebergCatalogEntry).values(
                catalog_name=CATALOG,
                table_namespace=NAMESPACE,
                table_name=key.name,
                metadata_location=after,
                iceberg_type=_TYPE,
            )
        )
        return
    changed = await session.scalar(
        update(IcebergCatalogEntry)
        # Compared and set in one statement: what was committed since the table was read stays.
        .where(is_table, IcebergCatalogEntry.metadata_location == before)
        .values(metadata_location=after, previous_metadata_location=before)
        .returning(IcebergCatalogEntry.table_name)
    )
    if changed is None:
        raise TableOvertaken(key.name)


async def delete_table(session: AsyncSession, key: TableKey) -> None:
    """Stop publishing the table: its snapshots no longer keep any file."""
    await session.execute(
        delete(LakeTable).where(
            LakeTable.format == key.format.value, LakeTable.tenant_id == key.tenant_id
        )
    )
    if key.format is FormatName.ICEBERG:
        await session.execute(
            delete(IcebergCatalogEntry).where(_IS_OURS, IcebergCatalogEntry.table_name == key.name)
        )


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as it was last published, and what it lacks.

    `lag_rows` counts rows after `complete_through_seq` that are not in the table; a merge since its
    publication can make it more than there are. `lag_s` is how long ago the oldest of them was
    accepted or sealed; 0 if there are none.
    """

    key: TableKey
    line: LakeTable
    lag_rows: int
    lag_s: float


async def table_statuses(session: AsyncSession, now: datetime) -> Sequence[TableStatus]:
    """The status of every published table."""
    tables = await list_tables(session)
    return [await _status(session, key, line, now) for key, line in tables.items()]


async def _status(
    session: AsyncSession, key: TableKey, line: LakeTable, now: datetime
) -> TableStatus:
    journal = select(
        func.coalesce(func.sum(JournalEntry.rows), 0), func.min(JournalEntry.received_at)
    )
    sealed = select(
        func.coalesce(func.sum(SegmentEntry.rows), 0), func.min(SegmentEntry.sealed_at)
    ).where(
        SegmentEntry.retired_at.is_(None),
        SegmentEntry.sealed_at > line.published_at,
        SegmentEntry.max_seq > line.complete_through_seq,
    )
    if key.tenant_id != ALL_TENANTS:
        journal = journal.where(JournalEntry.tenant_id == key.tenant_id)
        sealed = sealed.where(SegmentEntry.tenant_id == key.tenant_id)
    parts = [(await session.execute(query)).one() for query in (journal, sealed)]
    since = min((oldest for _, oldest in parts if oldest is not None), default=now)
    return TableStatus(
        key,
        line,
        lag_rows=sum(int(rows) for rows, _ in parts),
        lag_s=max(0.0, (now - since).total_seconds()),
    )
