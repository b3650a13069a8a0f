"""Loads the advisories of one import into the database, in many small transactions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, cast

import msgspec
from sqlalchemy import Table, bindparam, insert, update

from service.errors import Conflict, Invalid
from service.policy.osv import OsvRecord
from service.policy.osv_zip import ReadRecord
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import AdvisoryEntry, BlocklistImport

BATCH_ROWS: Final = 2_000
"""Advisories per transaction."""

ADVISORIES_MAX: Final = 5_000_000
PROGRESS_INTERVAL_S: Final = 5.0
EXAMPLES_MAX: Final = 20
"""How many unreadable records are named."""

_ADD: Final = insert(cast("Table", AdvisoryEntry.__table__))

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
    """What an import has read. `examples` are some of the unreadable records."""

    records: int = 0
    advisories: int = 0
    withdrawn: int = 0
    other: int = 0
    """Records with other ids, or only about packages of other ecosystems."""
    unreadable: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


class OngoingImport(NamedTuple):
    """An import under way: its generation, and when it began."""

    generation: int
    at: datetime


class AdvisoryLoader:
    """Loads the advisories of one generation into the database."""

    def __init__(self, store: Store, begun: OngoingImport, patterns: Sequence[str]) -> None:
        self.counts = Counts()
        self._store = store
        self._begun = begun
        self._flushed_at = time.monotonic()
        self._patterns = patterns
        self._rows: list[dict[str, object]] = []
        self._seen: set[str] = set()

    async def add(self, read: ReadRecord) -> None:
        """Count a record, and store the waiting ones in batches. Raises Invalid, Conflict."""
        counts, record = self.counts, read.record
        if record is None:
            self._note_unreadable(read.name, read.error or "")
        elif not any(fnmatchcase(record.advisory_id, pattern) for pattern in self._patterns):
            counts.other += 1
        elif record.advisory_id in self._seen:
            self._note_unreadable(read.name, "its id is in the file twice")
        elif record.is_withdrawn:
            self._seen.add(record.advisory_id)
            counts.withdrawn += 1
        else:
            self._seen.add(record.advisory_id)
            self._take(record)
        # Also without a full batch: an import that shows no progress counts as dead.
        is_late = time.monotonic() - self._flushed_at > PROGRESS_INTERVAL_S
        if is_late or len(self._rows) >= BATCH_ROWS:
            await self.flush()

    def _take(self, record: OsvRecord) -> None:
        if not record.packages:
            self.counts.other += 1
            return
        self.counts.records += 1
        self.counts.advisories += len(record.packages)
        if self.counts.advisories > ADVISORIES_MAX:
            raise Invalid(f"the file has more than {ADVISORIES_MAX} advisories that match")
        self._rows += [
            {
                "generation": self._begun.generation,
                "ecosystem": str(ecosystem),
                "package": package,
                "advisory_id": record.advisory_id,
                "spec": msgspec.json.encode(spec),
            }
            for (ecosystem, package), spec in record.packages.items()
        ]

    def _note_unreadable(self, name: str, error: str) -> None:
        self.counts.unreadable += 1
        if len(self.counts.examples) < EXAMPLES_MAX:
            self.counts.examples.append((name, error))

    async def flush(self) -> None:
        """Store the waiting advisories. Raises ImportOvertaken."""
        rows, self._rows = self._rows, []

        def store(work: SyncUnitOfWork) -> bool:
            begun = {"at": self._begun.generation, "begun_at": self._begun.at}
            if not work.transaction.rows(_PROGRESS, begun | {"now": work.now}):
                return False
            work.transaction.run(_ADD, rows)
            return True

        if not await self._store.write_at_once(store):
            raise ImportOvertaken
        self._flushed_at = time.monotonic()
