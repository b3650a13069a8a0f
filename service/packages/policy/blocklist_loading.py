"""Loads the advisories of one import into the database, in many small transactions."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Final, NamedTuple, cast

import msgspec
from msgspec import Meta
from sqlalchemy import Table, and_, bindparam, insert, literal, select, tuple_, update

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Conflict, Invalid
from service.packages.policy.blocklist_contents import Scope, own_id
from service.packages.policy.osv import OsvRecord
from service.packages.policy.osv_zip import ReadRecord
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import AdvisoryEntry, AdvisoryName, BlocklistImport
from service.store.tables.base import AnyText
from service.web.models import Answer

BATCH_ROWS: Final = 2_000
"""Advisories per transaction."""

ADVISORIES_MAX: Final = 5_000_000
PROGRESS_INTERVAL_S: Final = 5.0
EXAMPLES_MAX: Final = 20
"""How many unreadable records are named."""

ADD: Final = insert(cast("Table", AdvisoryEntry.__table__))

_NAMES: Final = cast("Table", AdvisoryName.__table__)
_NAME_VALUES: Final = [bindparam(column.name, type_=AnyText()) for column in _NAMES.c]
_ADD_NAMES: Final = insert(_NAMES).from_select(
    list(_NAMES.c),
    select(*_NAME_VALUES).where(
        ~select(literal(1))
        .where(*(column == value for column, value in zip(_NAMES.c, _NAME_VALUES, strict=True)))
        .exists()
    ),
)
"""Names stay over imports: only new ones are written."""

_PROGRESS: Final = (
    update(cast("Table", BlocklistImport.__table__))
    .where(
        BlocklistImport.generation == bindparam("at"),
        # A generation that was given up may be another import's by now.
        BlocklistImport.started_at == bindparam("begun_at"),
        BlocklistImport.switched_at.is_(None),
    )
    .values(progress_at=bindparam("now"))
    .returning(BlocklistImport.generation)
)


IMPORT_OVERTAKEN: Final = Conflict.of(
    "the import was overtaken by another one: nothing of it is in force"
)


@dataclass(slots=True)
class Counts:
    """What an import has read. `examples` are some of the unreadable records.

    `by_ecosystem` counts advisories.
    """

    records: int = 0
    advisories: int = 0
    withdrawn: int = 0
    other: int = 0
    """Records with other ids, or only about packages of other ecosystems."""
    unreadable: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)
    by_ecosystem: Counter[Ecosystem] = field(default_factory=Counter)


@dataclass(slots=True)
class Coverage:
    """What the records of an archive say about the archive: of those with the right ids.

    `unreadable` are the ids of records that cannot be read otherwise.
    """

    listed: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    modified: dict[Ecosystem, datetime] = field(default_factory=dict)
    _by_ecosystem: Counter[Ecosystem] = field(default_factory=Counter)
    _records: int = 0

    def add(self, record: OsvRecord) -> None:
        """Note a record."""
        (self.withdrawn if record.is_withdrawn else self.listed).add(record.advisory_id)
        if not record.ecosystems:
            return
        self._records += 1
        for ecosystem in record.ecosystems:
            self._by_ecosystem[ecosystem] += 1
        if record.modified_at is not None:
            for ecosystem in record.ecosystems:
                known = self.modified.get(ecosystem, record.modified_at)
                self.modified[ecosystem] = max(known, record.modified_at)

    def knows(self, advisory_id: str) -> bool:
        """True if a record of this id was noted."""
        return advisory_id in self.listed or advisory_id in self.withdrawn

    @property
    def ecosystems(self) -> list[Ecosystem]:
        """The ecosystems that the archive is about: what it does not list of them is gone.

        If every record names npm, it is npm's archive. Records in it may name packages of PyPI,
        too, but those are far from all of PyPI's.
        """
        in_all = [e for e in Ecosystem if self._records and self._by_ecosystem[e] == self._records]
        return in_all or [ecosystem for ecosystem in Ecosystem if self._by_ecosystem[ecosystem]]


class OngoingImport(NamedTuple):
    """An import under way: its generation, when it began, and the generation it is based on."""

    generation: int
    at: datetime
    base: int | None


class AdvisoryLoader:
    """Loads the advisories of one generation into the database."""

    def __init__(self, store: Store, begun: OngoingImport, scope: Scope) -> None:
        self.counts = Counts()
        self.coverage = Coverage()
        self._store = store
        self._begun = begun
        self._flushed_at = time.monotonic()
        self._scope = scope
        self._rows: list[dict[str, object]] = []
        self._names: list[dict[str, object]] = []

    async def add(self, read: ReadRecord) -> None:
        """Count a record, and store the waiting ones in batches. Raises Invalid, Conflict."""
        counts, record, advisory_id = self.counts, read.record, read.advisory_id
        if advisory_id is not None and not self._scope.matches(advisory_id):
            counts.other += 1
        elif record is None:
            self._record_unreadable(read, read.error or "")
        elif self.coverage.knows(record.advisory_id):
            self._record_unreadable(read, "its id is in the file twice")
        else:
            self.coverage.add(record)
            self._take(record)
        # Also without a full batch: an import that shows no progress counts as dead.
        is_late = time.monotonic() - self._flushed_at > PROGRESS_INTERVAL_S
        if is_late or len(self._rows) >= BATCH_ROWS:
            await self.flush()

    def _take(self, record: OsvRecord) -> None:
        counts = self.counts
        if record.is_withdrawn:
            counts.withdrawn += 1
            return
        if not record.packages:
            counts.other += 1
            return
        counts.records += 1
        counts.advisories += len(record.packages)
        for ecosystem, _ in record.packages:
            counts.by_ecosystem[ecosystem] += 1
        if counts.advisories > ADVISORIES_MAX:
            raise Invalid(f"the file has more than {ADVISORIES_MAX} advisories that match")
        self._rows += [
            {
                "generation": self._begun.generation,
                "ecosystem": str(ecosystem),
                "package": package,
                "advisory_id": self._scope.stored_id(record.advisory_id),
                "spec": msgspec.json.encode(spec),
                "feed": self._scope.feed,
            }
            for (ecosystem, package), spec in record.packages.items()
        ]
        self._names += [
            {
                "name": name,
                "ecosystem": str(ecosystem),
                "package": package,
                "advisory_id": self._scope.stored_id(record.advisory_id),
            }
            for name in record.names
            for ecosystem, package in record.packages
        ]

    def _record_unreadable(self, read: ReadRecord, error: str) -> None:
        self.counts.unreadable += 1
        if read.advisory_id is not None:
            self.coverage.unreadable.add(read.advisory_id)
        if len(self.counts.examples) < EXAMPLES_MAX:
            self.counts.examples.append((read.name, error))

    async def flush(self) -> None:
        """Store the waiting advisories. Raises IMPORT_OVERTAKEN."""
        rows, self._rows = self._rows, []
        names, self._names = self._names, []

        def store(work: SyncUnitOfWork) -> None:
            show_progress(work, self._begun)
            work.transaction.run(ADD, rows)
            work.transaction.run(_ADD_NAMES, names)

        await self._store.write_at_once(store)
        self._flushed_at = time.monotonic()


def show_progress(work: SyncUnitOfWork, begun: OngoingImport) -> None:
    """Note in its transaction that the import goes on. Raises IMPORT_OVERTAKEN."""
    values = {"at": begun.generation, "begun_at": begun.at, "now": work.now}
    if not work.transaction.rows(_PROGRESS, values):
        raise IMPORT_OVERTAKEN


_OLD: Final = cast("Table", AdvisoryEntry.__table__).alias("old")
_NEW: Final = cast("Table", AdvisoryEntry.__table__).alias("new")
_KEY: Final = ("ecosystem", "package", "advisory_id")
_ADDED: Final = ("generation", *_KEY, "feed", "spec")
_Key = tuple[str, str, str]

_BATCH: Final = (
    select(
        *(_OLD.c[name] for name in _KEY),
        _OLD.c.feed,
        _OLD.c.spec.label("old_spec"),
        _NEW.c.spec.label("new_spec"),
    )
    .select_from(
        _OLD.outerjoin(
            _NEW,
            and_(
                _NEW.c.generation == bindparam("generation"),
                *(_NEW.c[name] == _OLD.c[name] for name in _KEY),
            ),
        )
    )
    .where(
        _OLD.c.generation == bindparam("base"),
        tuple_(*(_OLD.c[name] for name in _KEY))
        > tuple_(*(bindparam(name, type_=AnyText()) for name in _KEY)),
    )
    .order_by(*(_OLD.c[name] for name in _KEY))
    .limit(BATCH_ROWS)
)


class _Row(NamedTuple):
    """A row of `_BATCH`. `new_spec` is None if the archive has no advisory of this key."""

    ecosystem: str
    package: str
    stored_id: str
    feed: str
    old_spec: bytes
    new_spec: bytes | None


class ChangedEcosystem(Answer):
    """How many advisories a feed has of an ecosystem, and how many an import changes."""

    before: int
    after: int
    added: int
    removed: int
    changed: int
    is_loss: Annotated[bool, Meta(description="More than a tenth is removed.")]

    @property
    def is_none(self) -> bool:
        """True if nothing changes."""
        return not (self.added or self.removed or self.changed)


@dataclass(slots=True)
class Carried:
    """What was compared and carried: for each ecosystem, and the ids that were removed.

    `left_alone` are the ids of the feed's other records. `counts` are all carried advisories, by
    feed and ecosystem.
    """

    before: Counter[Ecosystem] = field(default_factory=Counter)
    kept: Counter[Ecosystem] = field(default_factory=Counter)
    replaced: Counter[Ecosystem] = field(default_factory=Counter)
    changed: Counter[Ecosystem] = field(default_factory=Counter)
    removed: Counter[Ecosystem] = field(default_factory=Counter)
    removed_ids: set[str] = field(default_factory=set)
    left_alone: defaultdict[Ecosystem, set[str]] = field(default_factory=lambda: defaultdict(set))
    counts: Counter[tuple[str, Ecosystem]] = field(default_factory=Counter)

    def change(self, ecosystem: Ecosystem, loaded: int) -> ChangedEcosystem:
        """What changes in one ecosystem, of which so many advisories were loaded."""
        before, removed = self.before[ecosystem], self.removed[ecosystem]
        return ChangedEcosystem(
            before=before,
            after=loaded + self.kept[ecosystem],
            added=loaded - self.replaced[ecosystem],
            removed=removed,
            changed=self.changed[ecosystem],
            is_loss=removed * 10 > before,
        )


@dataclass(frozen=True, slots=True)
class AdvisoryCarrier:
    """Copies the advisories of the generation before, except what an import replaces.

    Of the `ecosystems` that it is about, what the archive does not list is gone.
    """

    _store: Store
    _begun: OngoingImport
    _scope: Scope
    _coverage: Coverage
    _ecosystems: Collection[Ecosystem]
    carried: Carried = field(init=False, default_factory=Carried)

    async def carry(self) -> None:
        """Carry everything, in many small transactions. Raises IMPORT_OVERTAKEN."""
        after: _Key | None = ("", "", "")
        while after is not None:
            after = await self._store.write_at_once(partial(self._carry, after=after))

    def _carry(self, work: SyncUnitOfWork, after: _Key) -> _Key | None:
        """Carry the rows of one batch, those after the key `after`; returns the last key."""
        show_progress(work, self._begun)
        generations = {"generation": self._begun.generation, "base": self._begun.base}
        found = work.transaction.rows(_BATCH, generations | dict(zip(_KEY, after, strict=True)))
        rows = [_Row(*row) for row in found]
        kept = []
        for row in rows:
            is_kept = row.new_spec is None and self._is_kept(row)
            self._count(row, is_kept=is_kept)
            if is_kept:
                values = (self._begun.generation, *row[:5])
                kept.append(dict(zip(_ADDED, values, strict=True)))
        work.transaction.run(ADD, kept)
        return rows[-1][:3] if len(rows) == BATCH_ROWS else None

    def _is_kept(self, row: _Row) -> bool:
        """True for an advisory that is not in the archive and stays in force nevertheless."""
        advisory_id = own_id(row.stored_id)
        if row.feed != self._scope.feed or not self._scope.matches(advisory_id):
            return True
        # What cannot be read may say anything: until it can, its predecessor stays.
        if advisory_id in self._coverage.unreadable:
            return True
        # A record that no longer names a package is about other packages now.
        return (
            row.ecosystem not in self._ecosystems
            and advisory_id not in self._coverage.withdrawn
            and advisory_id not in self._coverage.listed
        )

    def _count(self, row: _Row, *, is_kept: bool) -> None:
        carried, ecosystem = self.carried, Ecosystem(row.ecosystem)
        advisory_id = own_id(row.stored_id)
        if is_kept:
            carried.counts[row.feed, ecosystem] += 1
        if row.feed != self._scope.feed:
            return
        if not self._scope.matches(advisory_id):
            carried.left_alone[ecosystem].add(advisory_id)
            return
        carried.before[ecosystem] += 1
        if is_kept:
            carried.kept[ecosystem] += 1
        elif row.new_spec is None:
            carried.removed[ecosystem] += 1
            carried.removed_ids.add(advisory_id)
        else:
            carried.replaced[ecosystem] += 1
            carried.changed[ecosystem] += row.old_spec != row.new_spec
