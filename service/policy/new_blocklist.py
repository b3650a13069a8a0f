"""A new list as its import has made it: what it changes, and what it is made of."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from analytics.model.policy_envelopes import BlocklistImported
from service.packages.ecosystems import Ecosystem
from service.policy.blocklist_carrying import Carried, Change
from service.policy.blocklist_contents import (
    Archive,
    BlocklistContents,
    FeedCount,
    Imported,
    Scope,
)
from service.policy.blocklist_loading import Counts, Coverage


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
    def changes(self) -> dict[Ecosystem, Change]:
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
        imported = Imported(
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
