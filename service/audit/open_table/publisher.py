"""The publisher: makes open tables equal to the catalog, and tells which files they still need.

A publication compares the live segments with a table's current snapshot and commits the difference
as one snapshot. It holds the lease; the commit confirms it, and is refused if the table has changed
since it was read. So a publication that is killed or repeated changes nothing twice.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from analytics.open_table.table_format import (
    FormatName,
    SnapshotChange,
    TableFormat,
    TableHead,
    TableMissing,
    TableOvertaken,
    difference,
)
from analytics.storage.segment_metadata import Segment
from service.audit.compactor import Compactor
from service.audit.leased_job import LeasedJob
from service.audit.open_table.places import ALL_TENANTS, TableKey, lake_places
from service.audit.open_table.registry import (
    LakeState,
    delete_table,
    list_tables,
    list_versions,
    read_state,
    set_head,
)
from service.core.errors import file_fault
from service.core.threads import in_thread, run_uncancellable
from service.store.catalog import list_by_id
from service.store.lease import HeldLease, LeaseLost

_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """What one publication did to one table; `is_new_snapshot` is False if nothing had changed."""

    key: TableKey
    location: str
    snapshot: str | None
    is_new_snapshot: bool
    added: int
    removed: int
    files: int
    rows: int
    complete_through_seq: int


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry did to one table."""

    key: TableKey
    snapshots: int
    metadata_files: int


@dataclass(eq=False)
class Publisher(LeasedJob):
    """Publishes under the lease, so that any number of processes may run a publisher."""

    _compactor: Compactor
    _heads: dict[TableKey, tuple[datetime, TableHead]] = field(init=False, default_factory=dict)
    """What this process last published as each table, and when.

    Reading a table takes longer than the rest. An entry of another time is of another table: that
    one was dropped, and begun again with the same version numbers.
    """

    def __post_init__(self) -> None:
        """Find out where the tables are."""
        self.places = lake_places(self._settings)

    async def publish_due(self) -> None:
        """Publish what the settings ask for, and every table that was published before."""
        tables = await self._store.fetch(list_tables)
        if tables or self._settings.lake_formats:
            await self.publish(
                self._settings.lake_formats, is_per_tenant=self._settings.lake_per_tenant
            )

    async def publish(
        self, formats: Collection[str], *, is_per_tenant: bool = False
    ) -> list[Published]:
        """Bring tables up to date: those of `formats`, and all that were published before.

        With `is_per_tenant` the tables of `formats` are one for each organisation. Raises
        LeaseTaken, LeaseLost, LAKE_EXTRA_MISSING, StoreUnavailable, TableOvertaken.
        """
        for name in formats:
            self.places.table(TableKey(FormatName(name)))  # is it installed?
        async with self._lease.hold() as lease:
            await self._compactor.make_portable(lease)
            # Before the state is read, and under the lease, without which no segment is retired:
            # what was retired before `at` is retired in the state, too.
            async with lease.write() as work:
                at = work.now
            state = await self._store.fetch(read_state)
            wanted = _wanted_keys(state, formats, is_per_tenant=is_per_tenant)
            async with lease.renewed():
                return [await self._publish_table(lease, key, state, at) for key in wanted]

    async def expire(self) -> list[Expired]:
        """Expire the snapshots that were superseded before the time that they are kept."""
        if not await self._store.fetch(list_tables):
            return []
        async with self._lease.hold() as lease:
            async with lease.write() as work:
                at = work.now
            state = await self._store.fetch(read_state)
            async with lease.renewed():
                return [await self._expire_table(lease, key, state, at) for key in state.tables]

    async def expire_due(self) -> None:
        """`expire` as a job, which is due again only after an interval."""
        await self.expire()

    async def drop(self, keys: Sequence[TableKey]) -> list[TableKey]:
        """Stop publishing `keys` and remove their metadata; returns those that were published."""
        await self._lake.confirm_prefix()
        async with self._lease.hold() as lease:
            async with lease.write() as work:
                known = await list_tables(work.session)
            dropped = [key for key in keys if key in known]
            for key in dropped:
                # Before the table is forgotten: from then on its data files may be unlinked.
                await self._run(self.places.table(key).remove)
            async with lease.write() as work:
                for key in dropped:
                    await delete_table(work.session, key)
                    self._heads.pop(key, None)
        return dropped

    async def released(self, retired: Sequence[Segment], at: datetime) -> list[Segment]:
        """Those of `retired` that no unexpired snapshot names, nor can name any more.

        The caller holds the lease. `at` is now. All are kept back while a table cannot be read.
        """
        async with self._store.read() as session:
            tables = await list_tables(session)
            versions = await list_versions(session, tables)
        held: set[str] = set()
        for key in tables:
            table = self.places.table(key)
            since = at - self._kept_for
            with suppress(TableMissing):  # then it has no snapshots
                head = await self._run(table.read, versions[key])
                if head is not None:
                    held |= await self._run(table.named, head, since)
        return [segment for segment in retired if segment.segment_id not in held]

    async def published_before(self) -> datetime | None:
        """When the table that is furthest behind was published; None if there is no table.

        A segment retired later may be in a publication that is under way in a process that has
        lost its lease. One retired earlier cannot be: that publication would be refused.
        """
        tables = await self._store.fetch(list_tables)
        return min((line.published_at for line in tables.values()), default=None)

    @property
    def _kept_for(self) -> timedelta:
        return timedelta(hours=self._settings.lake_snapshot_hours)

    async def _publish_table(
        self, lease: HeldLease, key: TableKey, state: LakeState, at: datetime
    ) -> Published:
        await self._lake.confirm_prefix()
        table = self.places.table(key)
        before = await self._read(table, key, state)
        wanted = {live.segment_id: live.rows for live in state.live_of(key)}
        new, removed = difference(before, wanted)
        there, absent = await self._publishable(new)
        added = [(segment, self.places.uri(segment)) for segment in there]
        change = SnapshotChange(added, removed, state.complete_through(key, absent), at)
        rows = sum(wanted.values()) - sum(segment.rows for segment in absent)
        head = before
        is_new = (
            before is None
            or bool(added or removed)
            or change.complete_through_seq != before.complete_through_seq
            or not state.is_fenced(key)
        )
        if head is None or is_new:
            head = await self._run(table.write, before, change)
        await self._commit(lease, key, before.version if before else None, head, rows, at)
        # After the commit: readers without the catalog must not meet an uncommitted version.
        await self._run(table.announce, head)
        published = Published(
            key=key,
            location=table.location,
            snapshot=head.snapshot,
            is_new_snapshot=is_new,
            added=len(added),
            removed=len(removed),
            files=len(head.files),
            rows=rows,
            complete_through_seq=change.complete_through_seq,
        )
        if is_new:
            _log.info(
                "lake_published",
                format=key.format.value,
                table=key.name,
                added=len(added),
                removed=len(removed),
                complete_through_seq=change.complete_through_seq,
            )
        return published

    async def _publishable(self, new: Sequence[str]) -> tuple[list[Segment], list[Segment]]:
        """The `new` segments that the table can have, and those that it lacks for now.

        Files that it has already are not looked for again.
        """
        segments = await self._store.fetch(list_by_id, new)
        if len(segments) < len(new):  # the holder of the lease alone removes segments
            raise LeaseLost
        absent = [segment for segment in segments if not segment.is_portable]
        portable = [segment for segment in segments if segment.is_portable]
        # A snapshot must not name files that are not there.
        for segment in await in_thread(self._lake.segments.list_missing, portable):
            _log.error("segment_not_published", segment=segment.segment_id, reason="no file")
            absent.append(segment)
        gone = {segment.segment_id for segment in absent}
        return [segment for segment in segments if segment.segment_id not in gone], absent

    async def _expire_table(
        self, lease: HeldLease, key: TableKey, state: LakeState, at: datetime
    ) -> Expired:
        await self._lake.confirm_prefix()
        table, line = self.places.table(key), state.tables[key]
        head = await self._read(table, key, state)
        if head is None:
            return Expired(key, 0, 0)
        expired = await self._run(table.expire, head, at - self._kept_for, at)
        if expired is not None:
            # The time of the publication stays: segments retired since may still be in the table.
            await self._commit(lease, key, head.version, expired, line.rows, line.published_at)
            await self._run(table.announce, expired)
        grace = timedelta(seconds=self._settings.retired_grace_s)
        swept = await self._run(table.sweep, expired or head, at - grace)
        return Expired(key, head.snapshots - expired.snapshots if expired else 0, swept)

    async def _read(self, table: TableFormat, key: TableKey, state: LakeState) -> TableHead | None:
        """The table's current snapshot; None if it must be begun.

        A table whose metadata is elsewhere is one of a data dir that was moved or restored.
        """
        version, line = state.versions.get(key), state.tables.get(key)
        published_at, known = self._heads.get(key, (None, None))
        if (
            known is not None
            and line is not None
            and (line.published_at, version) == (published_at, known.version)
            and await self._run(table.is_current, known)
        ):
            return known
        if line is not None and line.location != table.location:
            version = None
        try:
            return await self._run(table.read, version)
        except TableMissing as error:
            _log.warning("lake_table_started_over", table=key.name, missing=str(error))
            return None

    async def _commit(
        self,
        lease: HeldLease,
        key: TableKey,
        before: str | None,
        head: TableHead,
        rows: int,
        at: datetime,
    ) -> None:
        async with lease.write() as work:
            location = self.places.location(key)
            with _overtaken_as_lost():
                await set_head(work.session, key, location, before, head, rows, at)
        # Only once it is committed: a head that was refused must not be taken for the table's.
        self._heads[key] = at, head

    async def _run(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """The result of `function` on a table, in a thread. Raises StoreUnavailable, LeaseLost."""
        try:
            with _overtaken_as_lost():
                return await run_uncancellable(function, *arguments)
        except OSError as error:
            raise file_fault(error) from error


def _wanted_keys(
    state: LakeState, formats: Collection[str], *, is_per_tenant: bool
) -> list[TableKey]:
    tenants = sorted(state.live) if is_per_tenant else [ALL_TENANTS]
    asked = [TableKey(FormatName(name), tenant_id) for name in formats for tenant_id in tenants]
    return list(dict.fromkeys([*state.tables, *asked]))


@contextmanager
def _overtaken_as_lost() -> Iterator[None]:
    """Raise LeaseLost if the table has changed: only the holder of the lease may change it."""
    try:
        yield
    except TableOvertaken as error:
        raise LeaseLost(f"{error}: the table was changed by another process") from error
