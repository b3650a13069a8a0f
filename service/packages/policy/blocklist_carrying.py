"""Carries into a new generation of the blocklist what its import leaves as it was."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast

from sqlalchemy import Table, and_, bindparam, select, tuple_

from service.packages.ecosystems import Ecosystem
from service.packages.policy.blocklist_contents import Scope, own_id
from service.packages.policy.blocklist_loading import (
    ADD,
    BATCH_ROWS,
    Coverage,
    OngoingImport,
    show_progress,
)
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import AdvisoryEntry
from service.store.tables.base import AnyText

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


@dataclass(frozen=True, slots=True)
class Change:
    """How many advisories of one ecosystem an import may replace, and what becomes of them."""

    before: int
    after: int
    added: int
    removed: int
    changed: int

    @property
    def is_loss(self) -> bool:
        """True if more than a tenth of the advisories would be lost."""
        return self.removed * 10 > self.before

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

    def change(self, ecosystem: Ecosystem, loaded: int) -> Change:
        """What changes in one ecosystem, of which so many advisories were loaded."""
        return Change(
            before=self.before[ecosystem],
            after=loaded + self.kept[ecosystem],
            added=loaded - self.replaced[ecosystem],
            removed=self.removed[ecosystem],
            changed=self.changed[ecosystem],
        )


class AdvisoryCarrier:
    """Copies the advisories of the generation before, except what an import replaces.

    Of the `ecosystems` that it is about, what the archive does not list is gone.
    """

    def __init__(
        self,
        store: Store,
        begun: OngoingImport,
        scope: Scope,
        coverage: Coverage,
        ecosystems: Collection[Ecosystem],
    ) -> None:
        self.carried = Carried()
        self._store = store
        self._begun = begun
        self._scope = scope
        self._coverage = coverage
        self._ecosystems = ecosystems

    async def carry(self) -> None:
        """Carry everything, in many small transactions. Raises ImportOvertaken."""
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
