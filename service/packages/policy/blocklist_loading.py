"""Loads the advisories of one import into the database, in many small transactions."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, cast

import msgspec
from sqlalchemy import Table, bindparam, insert, update

from service.core.errors import Conflict, Invalid
from service.packages.ecosystems import Ecosystem
from service.packages.policy.blocklist_contents import Scope
from service.packages.policy.osv import OsvRecord
from service.packages.policy.osv_zip import ReadRecord
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import AdvisoryEntry, BlocklistImport

BATCH_ROWS: Final = 2_000
"""Advisories per transaction."""

ADVISORIES_MAX: Final = 5_000_000
PROGRESS_INTERVAL_S: Final = 5.0
EXAMPLES_MAX: Final = 20
"""How many unreadable records are named."""

ADD: Final = insert(cast("Table", AdvisoryEntry.__table__))

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


class ImportOvertaken(Conflict):
    """Another process considered this import dead."""

    text = "the import was overtaken by another one: nothing of it is in force"


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

    def _record_unreadable(self, read: ReadRecord, error: str) -> None:
        self.counts.unreadable += 1
        if read.advisory_id is not None:
            self.coverage.unreadable.add(read.advisory_id)
        if len(self.counts.examples) < EXAMPLES_MAX:
            self.counts.examples.append((read.name, error))

    async def flush(self) -> None:
        """Store the waiting advisories. Raises ImportOvertaken."""
        rows, self._rows = self._rows, []

        def store(work: SyncUnitOfWork) -> None:
            show_progress(work, self._begun)
            work.transaction.run(ADD, rows)

        await self._store.write_at_once(store)
        self._flushed_at = time.monotonic()


def show_progress(work: SyncUnitOfWork, begun: OngoingImport) -> None:
    """Note in its transaction that the import goes on. Raises ImportOvertaken."""
    values = {"at": begun.generation, "begun_at": begun.at, "now": work.now}
    if not work.transaction.rows(_PROGRESS, values):
        raise ImportOvertaken
