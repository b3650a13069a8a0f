"""What the blocklist in force is made of: its feeds, and the import of each part of them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, Self

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid

OSV: Final = "osv"
"""The feed of imports that name none, and of all that older versions imported."""

FEED: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
PATTERNS_MAX: Final = 20
PATTERN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """What an import may replace: the records of `feed` whose id matches one of `ids` (globs).

    Upper and lower case differ, as in the ids themselves.
    """

    feed: str
    ids: tuple[str, ...]

    @classmethod
    def of(cls, feed: str, ids: Sequence[str]) -> Self:
        """The scope of these texts. Raises Invalid."""
        if not FEED.fullmatch(feed):
            raise Invalid(
                "feed must be 1 to 64 lower-case letters, digits, dots, hyphens or underscores, and"
                " begin with a letter or a digit",
                field="feed",
            )
        if not 1 <= len(ids) <= PATTERNS_MAX or not all(
            1 <= len(pattern) <= PATTERN_MAX and pattern.isprintable() for pattern in ids
        ):
            raise Invalid(f"ids must be 1 to {PATTERNS_MAX} globs such as MAL-*", field="ids")
        return cls(feed, tuple(sorted(set(ids))))

    def matches(self, advisory_id: str) -> bool:
        """True if one of the globs matches."""
        return any(fnmatchcase(advisory_id, pattern) for pattern in self.ids)

    def stored_id(self, advisory_id: str) -> str:
        """The id as the table of advisories has it, where it is unique among feeds."""
        return advisory_id if self.feed == OSV else f"{self.feed} {advisory_id}"


def own_id(stored_id: str) -> str:
    """The id that a record of a feed has itself; see `Scope.stored_id`."""
    return stored_id.rpartition(" ")[2]


class ArchiveCounts(msgspec.Struct, frozen=True):
    """What was in an archive: its records that were imported, and others."""

    records: int
    advisories: int
    withdrawn: int
    unreadable: int


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was imported. `ecosystems` are those of which it replaced a part."""

    source: str
    sha256: str
    ecosystems: list[Ecosystem]
    counts: ArchiveCounts


class FeedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest import with the globs `ids` put in force of one ecosystem of a feed.

    `imported_at` is when it was imported last, also if that changed nothing; `modified_at` is the
    newest change of a record in it. `is_whole` is False once an import with other globs has changed
    some of it.
    """

    feed: str
    ecosystem: Ecosystem
    ids: list[str]
    imported_at: datetime
    modified_at: datetime | None
    archive: Archive
    is_whole: bool = True

    @property
    def scope(self) -> Scope:
        """The records that it is about, of all ecosystems."""
        return Scope(self.feed, tuple(sorted(self.ids)))


@dataclass(frozen=True, slots=True)
class CompletedImport:
    """An import as it is put in force: what it replaced, and what of the feed it left alone.

    `archive` is None if a feed was removed: nothing replaces it in its `ecosystems`. `modified` is
    the newest change of a record by ecosystem. `touched` are the ids of its own records and of
    those it removed; `left_alone` those of records that its globs do not match.
    """

    scope: Scope
    archive: Archive | None
    ecosystems: Collection[Ecosystem]
    modified: Mapping[Ecosystem, datetime]
    touched: Collection[str]
    left_alone: Mapping[Ecosystem, Collection[str]]
    at: datetime

    def is_about(self, part: FeedPart) -> bool:
        """True for a part of the same feed and of an ecosystem that the import is about."""
        return part.feed == self.scope.feed and part.ecosystem in self.ecosystems

    def parts(self) -> list[FeedPart]:
        """Its own parts, one for each ecosystem."""
        if self.archive is None:
            return []
        return [
            FeedPart(
                feed=self.scope.feed,
                ecosystem=ecosystem,
                ids=[*self.scope.ids],
                imported_at=self.at,
                # A record may claim any date, also one that has not come.
                modified_at=min(self.modified[ecosystem], self.at)
                if ecosystem in self.modified
                else None,
                archive=self.archive,
            )
            for ecosystem in self.ecosystems
        ]


class FeedCount(msgspec.Struct, frozen=True):
    """How many advisories of a feed are in force for an ecosystem."""

    feed: str
    ecosystem: Ecosystem
    advisories: int


class BlocklistContents(msgspec.Struct, frozen=True):
    """What the list in force is made of, as stored with its generation."""

    parts: list[FeedPart]
    counts: list[FeedCount]

    def latest(self, scope: Scope, sha256: str) -> FeedPart | None:
        """A part of the import of this file with this scope, if everything of it is in force."""
        parts = [
            part
            for part in self.parts
            if part.scope == scope and part.archive.sha256 == sha256 and part.is_whole
        ]
        is_complete = parts and {part.ecosystem for part in parts} == {*parts[0].archive.ecosystems}
        return parts[0] if is_complete else None

    def renewed(self, scope: Scope, sha256: str, now: datetime) -> Self:
        """The same after the file was imported once more."""
        parts = [
            msgspec.structs.replace(part, imported_at=now)
            if part.scope == scope and part.archive.sha256 == sha256
            else part
            for part in self.parts
        ]
        return msgspec.structs.replace(self, parts=parts)

    def parts_after(self, done: CompletedImport) -> list[FeedPart]:
        """The parts once this import is in force.

        One with other globs remains for as long as it has advisories that the import left alone.
        """
        old = [
            _after_others(part, done.touched) if done.is_about(part) else part
            for part in self.parts
            if not done.is_about(part)
            or any(map(part.scope.matches, done.left_alone.get(part.ecosystem, ())))
        ]
        return [*old, *done.parts()]


def _after_others(part: FeedPart, touched: Iterable[str]) -> FeedPart:
    if not part.is_whole or not any(map(part.scope.matches, touched)):
        return part
    return msgspec.structs.replace(part, is_whole=False)


NOTHING: Final = BlocklistContents([], [])


def earlier_contents(
    source: str,
    sha256: str,
    ids: list[str],
    imported_at: datetime,
    counts: Mapping[Ecosystem, int],
) -> BlocklistContents:
    """What a list is made of that a version without feeds imported from one file.

    The same file is imported again once, so that what it is about gets known.
    """
    total = sum(counts.values())
    archive = Archive(
        source=source,
        sha256=sha256,
        ecosystems=[*counts],
        counts=ArchiveCounts(total, total, 0, 0),
    )
    parts = [
        FeedPart(
            feed=OSV,
            ecosystem=ecosystem,
            ids=ids,
            imported_at=imported_at,
            modified_at=None,
            archive=archive,
            is_whole=False,
        )
        for ecosystem in counts
    ]
    return BlocklistContents(parts, [FeedCount(OSV, e, count) for e, count in counts.items()])


@dataclass(frozen=True, slots=True)
class FeedState:
    """A feed's advisories for one ecosystem, and since when nothing newer was imported.

    `imported_at` is of the part that was imported longest ago, `modified_at` of the newest record.
    """

    feed: str
    ecosystem: Ecosystem
    ids: list[str]
    advisories: int
    imported_at: datetime
    modified_at: datetime | None

    def is_stale(self, now: datetime, stale_after_s: float) -> bool:
        """True if a part of it was imported longer ago than that."""
        return (now - self.imported_at).total_seconds() > stale_after_s


def feed_states(contents: BlocklistContents) -> list[FeedState]:
    """The state of each feed, by ecosystem."""
    counts = {(count.feed, count.ecosystem): count.advisories for count in contents.counts}
    states = []
    for feed, ecosystem in sorted({(part.feed, part.ecosystem) for part in contents.parts}):
        parts = [p for p in contents.parts if (p.feed, p.ecosystem) == (feed, ecosystem)]
        states.append(
            FeedState(
                feed,
                ecosystem,
                sorted({pattern for part in parts for pattern in part.ids}),
                counts.get((feed, ecosystem), 0),
                min(part.imported_at for part in parts),
                max((part.modified_at for part in parts if part.modified_at), default=None),
            )
        )
    return states
