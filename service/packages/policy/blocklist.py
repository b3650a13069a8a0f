"""Imports an archive of OSV records into the operator's blocklist, which is for all organisations.

An import replaces only the records of its scope (feed and ids) and of the archive's ecosystems. The
new list is made under a generation of its own, some thousand advisories per transaction, so that
audit rows are committed in between: first what the archive says, then what stays of the list in
force. One last transaction puts the generation in force and records the change. A process that ends
before it leaves the old list in force; one that ends after it, the new list. The next import
deletes leftovers.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import BinaryIO, Final

import msgspec
from msgspec.structs import asdict

from analytics.model.ecosystems import Ecosystem
from analytics.model.policy_envelopes import BlocklistImported
from analytics.model.rows import AuditContext
from service.core.errors import Invalid, NotFound
from service.core.threads import run_uncancellable
from service.packages.policy.blocklist_contents import (
    OSV,
    Archive,
    ArchiveCounts,
    BlocklistContents,
    CompletedImport,
    FeedCount,
    FeedPart,
    Scope,
)
from service.packages.policy.blocklist_generations import BlocklistGenerations, display_source
from service.packages.policy.blocklist_loading import (
    AdvisoryCarrier,
    AdvisoryLoader,
    Carried,
    ChangedEcosystem,
    Counts,
    Coverage,
    OngoingImport,
)
from service.packages.policy.osv_zip import ReadRecord, RecordFile
from service.packages.policy.repository import contents_of, find_current_import, load_feed_states
from service.store.organisations import list_orgs
from service.store.store import Store, UnitOfWork
from service.store.tables import BlocklistImport

Changes = Mapping[Ecosystem, ChangedEcosystem]
"""What an import changes, by ecosystem."""

_DIGEST_BYTES: Final = 2**20
_PART_RECORDS: Final = 200


NOTHING_TO_IMPORT: Final = Invalid.of(
    "no record matches {value}: nothing was imported, and the list in force stays", value="MAL-*"
)
FEED_NOT_LISTED: Final = NotFound.of(
    "the blocklist has no feed {value}: `countersign blocklist status` names those it has",
    value="osv",
)


@dataclass(frozen=True, slots=True)
class BlocklistResult:
    """The outcome of an import, or of a removal.

    `generation` is in force now. `changes` are by ecosystem; none for a file that was imported
    already. `is_in_force` is False if the changes were not approved.
    """

    generation: int
    feed: str
    sha256: str
    counts: Counts
    changes: Changes
    seconds: float
    is_in_force: bool = True

    @property
    def is_unchanged(self) -> bool:
        """True if the list in force is the same as before."""
        return all(change.is_none for change in self.changes.values())


@dataclass(frozen=True, slots=True)
class NewList:
    """What was loaded of an archive, and what was carried of the list in force.

    `ecosystems` are those that the import is about. `archive` is None if a feed was removed.
    """

    scope: Scope
    ecosystems: list[Ecosystem]
    archive: Archive | None
    counts: Counts
    coverage: Coverage
    carried: Carried

    @property
    def changes(self) -> dict[Ecosystem, ChangedEcosystem]:
        """What it changes in each ecosystem that has, or had, advisories of its scope."""
        loaded, before = self.counts.by_ecosystem, self.carried.before
        return {
            ecosystem: self.carried.change(ecosystem, loaded[ecosystem])
            for ecosystem in Ecosystem
            if loaded[ecosystem] or before[ecosystem]
        }

    @property
    def is_unchanged(self) -> bool:
        """True if it is the list in force once more."""
        return all(change.is_none for change in self.changes.values())

    def contents(self, before: BlocklistContents, now: datetime) -> BlocklistContents:
        """What the list is made of, where the one before was made of `before`."""
        imported = CompletedImport(
            scope=self.scope,
            archive=self.archive,
            ecosystems=self.ecosystems,
            modified=self.coverage.modified,
            touched=self.coverage.listed | self.carried.removed_ids,
            left_alone=self.carried.left_alone,
            at=now,
        )
        loaded = {(self.scope.feed, e): count for e, count in self.counts.by_ecosystem.items()}
        counts = self.carried.counts + Counter(loaded)
        return BlocklistContents(
            before.parts_after(imported),
            [FeedCount(feed, ecosystem, count) for (feed, ecosystem), count in counts.items()],
        )

    def envelope(self, generation: int) -> BlocklistImported:
        """What the audit rows say."""
        changes = self.changes.items()
        archive = self.archive
        return BlocklistImported(
            generation=generation,
            source="" if archive is None else archive.source,
            feed=self.scope.feed,
            ids=[*self.scope.ids],
            ecosystems=[str(ecosystem) for ecosystem in self.ecosystems],
            advisories=sum(change.after for _, change in changes),
            advisories_before=sum(change.before for _, change in changes),
            before={str(ecosystem): change.before for ecosystem, change in changes},
            after={str(ecosystem): change.after for ecosystem, change in changes},
            removed={str(ecosystem): change.removed for ecosystem, change in changes},
            withdrawn=self.counts.withdrawn,
            unreadable=self.counts.unreadable,
            sha256="" if archive is None else archive.sha256,
        )


class BlocklistImporter:
    """Imports archives. Several processes may try, but only one at a time imports."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._generations = BlocklistGenerations(store)

    async def import_file(
        self,
        file: BinaryIO,
        source: str,
        patterns: Sequence[str],
        by: AuditContext,
        *,
        feed: str = OSV,
        approve: Callable[[Changes], bool] = lambda changes: True,
    ) -> BlocklistResult:
        """Replace the records of `feed` whose id matches one of `patterns` by those of `file`.

        Raises UNUSABLE_ZIP, NOTHING_TO_IMPORT, IMPORT_UNDER_WAY, IMPORT_OVERTAKEN, Invalid: then
        the list in force stays. If `approve` answers False, nothing is changed: an import without
        a change would be recorded. The patterns are globs. The file is read in threads.
        """
        began_at = time.monotonic()
        scope = Scope.of(feed, patterns)
        sha256 = await run_uncancellable(_digest, file)
        current, known = await self._known(scope, sha256)
        if known is not None:
            return await self._renew(current, known, approve, began_at)
        records = await run_uncancellable(RecordFile, file)

        async def load(begun: OngoingImport) -> NewList:
            loading = AdvisoryLoader(self._store, begun, scope)
            unread = records.records()
            while part := await run_uncancellable(_next_part, unread):
                for read in part:
                    await loading.add(read)
            await loading.flush()
            archive = Archive(
                source=display_source(source),
                sha256=sha256,
                ecosystems=loading.coverage.ecosystems,
                counts=msgspec.convert(loading.counts, ArchiveCounts, from_attributes=True),
            )
            new = await self._completed(begun, scope, loading, archive)
            if not (loading.counts.records or (loading.coverage.withdrawn and new.carried.removed)):
                raise NOTHING_TO_IMPORT(value=" ".join(scope.ids))
            return new

        begun = await self._generations.begin(source, sha256, scope, by)
        return await self._replace(begun, load, by, approve, began_at)

    async def remove_feed(
        self, feed: str, by: AuditContext, approve: Callable[[Changes], bool]
    ) -> BlocklistResult:
        """Remove all of `feed` from the list.

        Raises FEED_NOT_LISTED, IMPORT_UNDER_WAY, IMPORT_OVERTAKEN, Invalid. `approve` as above.
        """
        began_at = time.monotonic()
        scope = Scope.of(feed, ["*"])
        async with self._store.read() as session:
            states = await load_feed_states(session)
        if feed not in {state.feed for state in states}:
            raise FEED_NOT_LISTED(value=feed)

        async def load(begun: OngoingImport) -> NewList:
            loading = AdvisoryLoader(self._store, begun, scope)
            return await self._completed(begun, scope, loading, None)

        begun = await self._generations.begin("", "", scope, by)
        return await self._replace(begun, load, by, approve, began_at)

    async def _renew(
        self, generation: int, part: FeedPart, approve: Callable[[Changes], bool], began_at: float
    ) -> BlocklistResult:
        """Note, if that is approved, that the file of `part`, which is in force, was imported."""
        scope, sha256 = part.scope, part.archive.sha256
        if approve({}):
            await self._generations.renew(
                lambda old, now: old.renewed(scope, sha256, now), generation
            )
        await self._generations.delete_left_over()
        counts, seconds = Counts(**asdict(part.archive.counts)), time.monotonic() - began_at
        return BlocklistResult(generation, scope.feed, sha256, counts, {}, seconds)

    async def _replace(
        self,
        begun: OngoingImport,
        load: Callable[[OngoingImport], Awaitable[NewList]],
        by: AuditContext,
        approve: Callable[[Changes], bool],
        began_at: float,
    ) -> BlocklistResult:
        """Put what `load` makes in force, if it changes anything and that is approved."""
        try:
            new = await load(begun)
            is_approved = approve(new.changes)
            is_new = is_approved and not new.is_unchanged
            if is_new:
                await self._put_in_force(begun, new, by)
            else:
                if is_approved:
                    await self._generations.renew(new.contents, begun.base)
                await self._generations.delete(begun)
        except BaseException:  # also Ctrl-C: the next import should not have to wait
            await self._generations.delete(begun)
            raise
        await self._generations.delete_left_over()
        return BlocklistResult(
            begun.generation if is_new else begun.base or 0,
            new.scope.feed,
            "" if new.archive is None else new.archive.sha256,
            new.counts,
            new.changes,
            time.monotonic() - began_at,
            is_in_force=is_approved or new.is_unchanged,
        )

    async def _known(self, scope: Scope, sha256: str) -> tuple[int, FeedPart | None]:
        """The generation in force, and the part of it that is this file; None if it is not."""
        async with self._store.read() as session:
            current = await find_current_import(session)
            if current is None:
                return 0, None
            contents = await contents_of(session, current)
        return current.generation, contents.latest(scope, sha256)

    async def _completed(
        self,
        begun: OngoingImport,
        scope: Scope,
        loading: AdvisoryLoader,
        archive: Archive | None,
    ) -> NewList:
        """The new list, once what stays is carried into its generation."""
        ecosystems = [*Ecosystem] if archive is None else archive.ecosystems
        carrier = AdvisoryCarrier(self._store, begun, scope, loading.coverage, ecosystems)
        if begun.base is not None:
            await carrier.carry()
        return NewList(
            scope, ecosystems, archive, loading.counts, loading.coverage, carrier.carried
        )

    async def _put_in_force(self, begun: OngoingImport, new: NewList, by: AuditContext) -> None:
        """Switch the generation on and record it.

        Every organisation gets the row: its log must show what its installs were decided by.
        """

        async def finish(work: UnitOfWork, entry: BlocklistImport, old: BlocklistContents) -> None:
            entry.records = new.counts.records
            entry.advisories = new.counts.advisories
            entry.withdrawn = new.counts.withdrawn
            entry.unreadable = new.counts.unreadable
            entry.contents = msgspec.json.encode(new.contents(old, work.now))
            envelope = new.envelope(begun.generation)
            for org in await list_orgs(work.session):
                work.record(org.id, envelope, by)

        await self._generations.switch_on(begun, finish)


def _next_part(records: Iterator[ReadRecord]) -> list[ReadRecord]:
    """The next records, some at once; none at the end."""
    return list(islice(records, _PART_RECORDS))


def _digest(file: BinaryIO) -> str:
    """The SHA-256 of the whole file."""
    digest = hashlib.sha256()
    file.seek(0)
    while data := file.read(_DIGEST_BYTES):
        digest.update(data)
    return digest.hexdigest()
