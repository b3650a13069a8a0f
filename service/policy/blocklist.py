"""Imports OSV's bulk file as the operator's blocklist, which applies to every organisation.

The advisories of the new file are loaded under a generation of their own, some thousand per
transaction, so that audit rows are committed in between. One last transaction puts the generation
in force and records the change. A process that ends before it leaves the old list in force; one
that ends after it, the new list. The next import deletes leftovers.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import BinaryIO, Final

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_ms
from analytics.model.policy_envelopes import BlocklistImported
from analytics.model.rows import AuditContext
from service.errors import Conflict, Invalid
from service.orgs.repository import list_orgs
from service.packages.ecosystems import Ecosystem
from service.policy.blocklist_loading import (
    BATCH_ROWS,
    AdvisoryLoader,
    Counts,
    ImportOvertaken,
    OngoingImport,
)
from service.policy.osv_zip import RecordFile
from service.policy.repository import find_current_import
from service.store.store import Store
from service.store.tables import AdvisoryEntry, BlocklistImport

PATTERNS_MAX: Final = 20
ALIVE_FOR: Final = timedelta(minutes=1)
"""How long after its last batch an import still counts as under way."""
IMPORTS_KEPT: Final = 50
_DIGEST_BYTES: Final = 2**20
_SOURCE_MAX: Final = 200


class NothingToImport(Invalid):
    """No record of the file matches: replacing the list would empty it."""

    text = "no record matches {value}: nothing was imported, and the list in force stays"


class ImportUnderWay(Conflict):
    """Another process is importing."""

    text = "another import is under way (since {value}): wait until it has ended"


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of an import. `is_unchanged`: file and ids are those already in force."""

    generation: int
    sha256: str
    counts: Counts
    advisories_before: int
    seconds: float
    is_unchanged: bool = False


class BlocklistImporter:
    """Replaces the blocklist. Several processes may try, but only one at a time imports."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def import_file(
        self,
        file: BinaryIO,
        source: str,
        patterns: Sequence[str],
        by: AuditContext,
        on_progress: Callable[[int, int], None],
    ) -> ImportResult:
        """Replace the blocklist with the records of `file` whose id matches one of `patterns`.

        Raises UnusableZip, NothingToImport, ImportUnderWay, ImportOvertaken, Invalid: then the list
        in force stays. The patterns are globs. `on_progress` gets the bytes done and all bytes.
        """
        _check_patterns(patterns)
        began_at = time.monotonic()
        sha256 = _digest(file)
        before = await self._current()
        if before is not None and (before.sha256, before.ids) == (sha256, [*patterns]):
            await self._forget(await self._left_over())
            return _unchanged(before, time.monotonic() - began_at)
        records = RecordFile(file)
        begun = await self._begin(source, sha256, patterns, by)
        loading = AdvisoryLoader(self._store, begun, patterns)
        try:
            for read, done in records.records():
                await loading.add(read)
                on_progress(done, records.size)
            await loading.flush()
            if not loading.counts.records:
                raise NothingToImport(value=" ".join(patterns))
            known = await self._switch(begun, loading.counts, by)
        except BaseException:  # also Ctrl-C: the next import should not have to wait
            await self._forget([begun.generation], begun.at)
            raise
        await self._forget(await self._left_over())
        seconds = time.monotonic() - began_at
        return ImportResult(begun.generation, sha256, loading.counts, known, seconds)

    async def _current(self) -> BlocklistImport | None:
        async with self._store.read() as session:
            return await find_current_import(session)

    async def _begin(
        self, source: str, sha256: str, patterns: Sequence[str], by: AuditContext
    ) -> OngoingImport:
        """Allocate a generation. Raises ImportUnderWay."""
        await self._forget(await self._left_over())
        async with self._store.write() as work:
            other = await work.session.scalar(
                select(BlocklistImport).where(BlocklistImport.switched_at.is_(None))
            )
            if other is not None:
                raise ImportUnderWay(value=format_ms(other.started_at))
            last = await work.session.scalar(select(func.max(BlocklistImport.generation)))
            entry = BlocklistImport(
                # The highest generation that was switched on is in force, so each must exceed all
                # others.
                generation=(last or 0) + 1,
                source=_shown(source),
                sha256=sha256,
                ids=[*patterns],
                imported_by=by.actor,
                started_at=work.now,
                progress_at=work.now,
            )
            work.session.add(entry)
            return OngoingImport(entry.generation, entry.started_at)

    async def _switch(self, begun: OngoingImport, counts: Counts, by: AuditContext) -> int:
        """Put the generation in force and record it; returns the previous number of advisories.

        Every organisation gets the row: its log must show what its installs were decided by.
        """
        async with self._store.write() as work:
            before = await find_current_import(work.session)
            entry = await work.session.get(BlocklistImport, begun.generation)
            # After a long pause the import counts as dead, and its number may be another import's
            # by now.
            if entry is None or entry.started_at != begun.at:
                raise ImportOvertaken
            entry.switched_at = entry.progress_at = work.now
            entry.records = counts.records
            entry.advisories = counts.advisories
            entry.withdrawn = counts.withdrawn
            entry.unreadable = counts.unreadable
            known = 0 if before is None else before.advisories
            envelope = BlocklistImported(
                generation=begun.generation,
                source=entry.source,
                ids=entry.ids,
                advisories=counts.advisories,
                advisories_before=known,
                withdrawn=counts.withdrawn,
                unreadable=counts.unreadable,
                sha256=entry.sha256,
            )
            for org in await list_orgs(work.session):
                work.record(org.id, envelope, by)
        return known

    async def _left_over(self) -> list[int]:
        """Generations that are neither in force nor being imported."""
        async with self._store.write() as work:
            current = await find_current_import(work.session)
            alive_from = work.now - ALIVE_FOR
            entries = (await work.session.scalars(select(BlocklistImport))).all()
            generations = (
                await work.session.scalars(select(AdvisoryEntry.generation).distinct())
            ).all()
        alive = {
            entry.generation
            for entry in entries
            if entry.switched_at is None and entry.progress_at > alive_from
        }
        dead = {entry.generation for entry in entries if entry.switched_at is None} - alive
        kept = alive | ({current.generation} if current is not None else set())
        return sorted((set(generations) | dead) - kept)

    async def _forget(self, generations: Sequence[int], begun_at: datetime | None = None) -> None:
        """Delete the advisories of these generations, and the entries of unfinished imports.

        With `begun_at`, only if the import of the one given generation began then.
        """
        if begun_at is not None and not await self._is_of(generations[0], begun_at):
            return
        for generation in generations:
            while await self._forget_some(generation):
                pass
        async with self._store.write() as work:
            session = work.session
            await session.execute(
                delete(BlocklistImport).where(
                    BlocklistImport.generation.in_(generations),
                    BlocklistImport.switched_at.is_(None),
                )
            )
            last = await session.scalar(select(func.max(BlocklistImport.generation)))
            has_none = (
                ~select(AdvisoryEntry.generation)
                .where(AdvisoryEntry.generation == BlocklistImport.generation)
                .exists()
            )
            await session.execute(
                delete(BlocklistImport).where(
                    BlocklistImport.generation <= (last or 0) - IMPORTS_KEPT, has_none
                )
            )

    async def _is_of(self, generation: int, begun_at: datetime) -> bool:
        async with self._store.read() as session:
            entry = await session.get(BlocklistImport, generation)
            return entry is not None and entry.started_at == begun_at

    async def _forget_some(self, generation: int) -> bool:
        """Delete the advisories of up to BATCH_ROWS packages; False once none are left."""
        async with self._store.write() as work:
            session = work.session
            mine = AdvisoryEntry.generation == generation
            for ecosystem in Ecosystem:
                of_one = (mine, AdvisoryEntry.ecosystem == str(ecosystem))
                bound = await _nth_package(session, generation, ecosystem)
                if bound is not None:
                    await session.execute(
                        delete(AdvisoryEntry).where(*of_one, AdvisoryEntry.package < bound)
                    )
                    return True
                await session.execute(delete(AdvisoryEntry).where(*of_one))
        return False


async def _nth_package(session: AsyncSession, generation: int, ecosystem: Ecosystem) -> str | None:
    """The package after the first BATCH_ROWS, or None if there are no more."""
    return await session.scalar(
        select(AdvisoryEntry.package)
        .distinct()
        .where(AdvisoryEntry.generation == generation, AdvisoryEntry.ecosystem == str(ecosystem))
        .order_by(AdvisoryEntry.package)
        .limit(1)
        .offset(BATCH_ROWS)
    )


def _check_patterns(patterns: Sequence[str]) -> None:
    if not 1 <= len(patterns) <= PATTERNS_MAX or not all(
        1 <= len(pattern) <= _SOURCE_MAX and pattern.isprintable() for pattern in patterns
    ):
        raise Invalid(f"ids must be 1 to {PATTERNS_MAX} globs such as MAL-*", field="ids")


def _digest(file: BinaryIO) -> str:
    """The SHA-256 of the whole file."""
    digest = hashlib.sha256()
    file.seek(0)
    while data := file.read(_DIGEST_BYTES):
        digest.update(data)
    return digest.hexdigest()


def _unchanged(entry: BlocklistImport, seconds: float) -> ImportResult:
    counts = Counts(
        records=entry.records,
        advisories=entry.advisories,
        withdrawn=entry.withdrawn,
        unreadable=entry.unreadable,
    )
    return ImportResult(
        entry.generation, entry.sha256, counts, entry.advisories, seconds, is_unchanged=True
    )


def _shown(source: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in source)[
        :_SOURCE_MAX
    ]
