"""Generations of the blocklist: each is a whole list, and the last one switched on is in force."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.ecosystems import Ecosystem
from analytics.model.instants import format_ms
from analytics.model.rows import AuditContext
from service.core.errors import Conflict
from service.core.text_rules import printable
from service.packages.policy.blocklist_contents import NOTHING, BlocklistContents, Scope
from service.packages.policy.blocklist_loading import BATCH_ROWS, IMPORT_OVERTAKEN, OngoingImport
from service.packages.policy.repository import contents_of, find_current_import
from service.store.store import Store, UnitOfWork
from service.store.tables import AdvisoryEntry, BlocklistImport, Organisation

ALIVE_FOR: Final = timedelta(minutes=1)
"""How long after its last batch an import still counts as under way."""
IMPORTS_KEPT: Final = 50
_SOURCE_MAX: Final = 200


IMPORT_UNDER_WAY: Final = Conflict.of(
    "another import is under way (since {value}): wait until it has ended",
    value="2026-01-31T08:00:00.000Z",
)


class BlocklistGenerations:
    """The generations in the database: they are begun, switched on, and deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(
        self, source: str, sha256: str, scope: Scope, by: AuditContext
    ) -> OngoingImport:
        """Allocate a generation. Raises IMPORT_UNDER_WAY."""
        await self.delete_left_over()
        async with self._store.write() as work:
            other = await work.session.scalar(
                select(BlocklistImport).where(BlocklistImport.switched_at.is_(None))
            )
            if other is not None:
                raise IMPORT_UNDER_WAY(value=format_ms(other.started_at))
            last = await work.session.scalar(select(func.max(BlocklistImport.generation)))
            current = await find_current_import(work.session)
            entry = BlocklistImport(
                # The highest generation that was switched on is in force, so each must exceed all
                # others.
                generation=(last or 0) + 1,
                source=display_source(source),
                sha256=sha256,
                ids=[*scope.ids],
                feed=scope.feed,
                imported_by=by.actor,
                started_at=work.now,
                progress_at=work.now,
            )
            work.session.add(entry)
            base = None if current is None else current.generation
            return OngoingImport(entry.generation, entry.started_at, base)

    async def switch_on(
        self,
        begun: OngoingImport,
        finish: Callable[[UnitOfWork, BlocklistImport, BlocklistContents], Awaitable[None]],
    ) -> None:
        """Put the generation in force, in the transaction in which `finish` completes its entry.

        `finish` is also given what the list before it was made of. Raises IMPORT_OVERTAKEN.
        """
        async with self._store.write() as work:
            current = await find_current_import(work.session)
            entry = await work.session.get(BlocklistImport, begun.generation)
            # After a long pause the import counts as dead, and its number may be another import's
            # by now.
            if entry is None or entry.started_at != begun.at:
                raise IMPORT_OVERTAKEN
            before = NOTHING if current is None else await contents_of(work.session, current)
            entry.switched_at = entry.progress_at = work.now
            await finish(work, entry, before)

    async def renew(
        self,
        change: Callable[[BlocklistContents, datetime], BlocklistContents],
        generation: int | None,
    ) -> None:
        """Replace what is told of the list in force, which itself stays as it is.

        Raises IMPORT_OVERTAKEN unless `generation` is in force still.
        """
        async with self._store.write() as work:
            current = await find_current_import(work.session)
            if current is None or current.generation != generation:
                raise IMPORT_OVERTAKEN
            contents = change(await contents_of(work.session, current), work.now)
            current.contents = msgspec.json.encode(contents)

    async def delete_left_over(self) -> None:
        """Delete the advisories of all generations that are neither in force nor being imported."""
        await self._delete(await self._left_over())

    async def delete(self, begun: OngoingImport) -> None:
        """Delete an import that is given up, unless its number is another import's by now."""
        async with self._store.read() as session:
            entry = await session.get(BlocklistImport, begun.generation)
        if entry is not None and entry.started_at == begun.at:
            await self._delete([begun.generation])

    async def _left_over(self) -> list[int]:
        """Generations that are neither in force nor being imported."""
        async with self._store.write() as work:
            current = await find_current_import(work.session)
            alive_from = work.now - ALIVE_FOR
            entries = (await work.session.scalars(select(BlocklistImport))).all()
            matched = {*await work.session.scalars(select(Organisation.matched_generation))}
            generations = (
                await work.session.scalars(select(AdvisoryEntry.generation).distinct())
            ).all()
        alive = {
            entry.generation
            for entry in entries
            if entry.switched_at is None and entry.progress_at > alive_from
        }
        dead = {entry.generation for entry in entries if entry.switched_at is None} - alive
        # What past installs were compared with last tells what is new since.
        kept = alive | matched | ({current.generation} if current is not None else set())
        return sorted((set(generations) | dead) - kept)

    async def _delete(self, generations: Sequence[int]) -> None:
        """Delete the advisories of these generations, and the entries of unfinished imports."""
        for generation in generations:
            while await self._delete_some(generation):
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

    async def _delete_some(self, generation: int) -> bool:
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


def display_source(source: str) -> str:
    """The name of a file for messages and rows: bounded, and without control characters."""
    return printable(source[:_SOURCE_MAX])
