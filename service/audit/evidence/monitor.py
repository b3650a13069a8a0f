"""Compares the rows with the tree, and the tree with all that was signed.

Every leaf is computed again from its row. What is changed, missing or added behind the service's
back is named: the ids between which it is, the tile or the checkpoint. A background job does it as
often as stored files are verified, and records differences in the log itself.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from sqlalchemy import func, or_, select, update

from analytics.evidence.groups import days_between, leaves_between
from analytics.evidence.merkle import GROUP, CompactRange, root_of, split
from analytics.evidence.notes import Checkpoint, InvalidNote, Note, VerifierKey
from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.log_envelopes import EvidenceDiffers
from analytics.model.rows import AuditContext
from analytics.model.schema import audit_id
from service.access.callers import service_context
from service.audit.evidence.keys import verifier_keys
from service.audit.evidence.prover import note_of
from service.audit.evidence.trees import (
    LocatedGroup,
    StoredCheckpoint,
    TreeState,
    find_tree,
    last_checkpoint,
    list_checkpoints,
    list_groups,
    list_tiles,
    load_day_keys,
    log_name,
)
from service.audit.lake import Lake
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.lease import LeaseKeeper
from service.store.store import Store
from service.store.tables import EvidenceCheckpoint, EvidenceTile, EvidenceTree

NAMED_MAX: Final = 10
"""The differences that a row of the log names; a command names all."""

OnRows = Callable[[int], object]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Comparison:
    """What was compared of one organisation, and how it differs, in sentences."""

    tenant_id: str
    name: str = ""
    size: int = 0
    rows: int = 0
    checkpoints: int = 0
    held: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group as it was found: its root, and its leaves with their seqs unless it is unknown."""

    root: bytes
    is_complete: bool
    leaves: Sequence[tuple[int, bytes]] = ()


@dataclass(slots=True)
class _Tile:
    """A tile of level 1 as it was found."""

    rows: int = 0
    differences: list[str] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)

    def add(
        self,
        located: LocatedGroup,
        stored: Sequence[tuple[int, bytes]],
        signed: bytes | None,
        tail: bytes,
    ) -> None:
        """Compare the rows of a group with what was signed: its root, or the tail of the tree."""
        group, is_complete = located.group, signed is not None
        place = f"rows {audit_id(group.first_seq)} to {audit_id(group.end_seq - 1)}"
        signed_rows = 0 if located.is_pruned else group.size - len(located.pruned)
        if len(stored) != signed_rows:
            text = f"{place}: {len(stored)} are stored, {signed_rows} were signed"
            self.differences.append(text)
        if located.is_pruned or len(stored) != signed_rows:
            self.groups.append(_Group(signed or b"", is_complete))
            return
        leaves = {leaf.place: (leaf.seq, leaf.hash) for leaf in located.pruned}
        free = (place for place in range(group.size) if place not in leaves)
        leaves |= dict(zip(free, stored, strict=True))
        found = [leaves[place] for place in range(group.size)]
        hashes = [leaf for _, leaf in found]
        root = root_of(hashes)
        if root != signed if is_complete else b"".join(hashes) != tail:
            self.differences.append(f"{place}: one of them is not as it was signed")
        self.groups.append(_Group(root if signed is None else signed, is_complete, found))


@dataclass(slots=True)
class _Signed:
    """What was signed of a log, compared with its roots while its leaves pass."""

    done: Comparison
    keys: dict[str, list[VerifierKey]]
    wanted: dict[int, list[tuple[str, bytes, int]]] = field(default_factory=dict)
    """By size: what says so, the root that it says, and the last seq if it says that."""

    def add_held(self, note: Note) -> None:
        """A checkpoint that is kept elsewhere, if it is of this log."""
        checkpoint = Checkpoint.parse(note.text)
        if checkpoint.origin not in self.keys:
            return
        self.done.held += 1
        said = f"the checkpoint of size {checkpoint.size} that is kept elsewhere"
        self._check_signature(said, checkpoint.origin, note)
        if checkpoint.size > self.done.size:
            self.done.differences.append(f"{said} has more rows than this log: some were removed")
        self.wanted.setdefault(checkpoint.size, []).append((said, checkpoint.root, 0))

    def add(self, tree: TreeState, signed: StoredCheckpoint) -> None:
        """A checkpoint of the database."""
        said, name = (
            f"the checkpoint of size {signed.size}",
            log_name(tree.origin, signed.generation),
        )
        self.done.checkpoints += 1
        try:
            self._check_signature(said, name, Note.parse(note_of(tree.origin, signed)))
        except InvalidNote as error:
            self.done.differences.append(f"{said} is damaged: {error}")
        self.wanted.setdefault(signed.size, []).append((said, signed.root, signed.last_seq))

    def _check_signature(self, said: str, name: str, note: Note) -> None:
        try:
            note.check(self.keys.get(name, ()))
        except InvalidNote as error:
            self.done.differences.append(f"{said}: {error}")

    def pass_group(self, whole: CompactRange, group: _Group) -> None:
        """Add the group to the tree, and compare the sizes that end in it.

        Of a group that is pruned as a whole nothing is left to compare sizes within it with.
        """
        ends = [size for size in self.wanted if whole.size < size <= whole.size + GROUP]
        if group.leaves and (ends or not group.is_complete):
            for seq, leaf in group.leaves:
                whole.add(leaf)
                self._compare(whole, seq)
        elif group.is_complete:
            whole.add(group.root, GROUP.bit_length() - 1)
            self._compare(whole, 0)
        for size in ends:
            self.wanted.pop(size, None)

    def _compare(self, whole: CompactRange, last_seq: int) -> None:
        for said, root, seq in self.wanted.pop(whole.size, ()):
            if root != whole.root or (seq and last_seq and seq != last_seq):
                self.done.differences.append(f"{said} has another root or end than its rows")


class Monitor:
    """Compares each organisation's log; under a lease, so that one process of all nodes does it."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        lake: Lake,
        lease: LeaseKeeper,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._differences = metrics.gauge(
            "countersign_evidence_differences",
            "Differences between logs and what was signed of them, when last compared.",
            mode="livemax",
        )
        self._found: dict[str, int] = {}
        self._interval = timedelta(seconds=settings.scrub_interval_s)
        self._by = service_context(settings.platform_tenant_id)
        self._store = store
        self._lake = lake
        self._lease = lease
        self._clock = clock

    async def compare_due(self) -> bool:
        """Compare the log that waited longest, if that is due, and record differences.

        True if there may be more. Raises LeaseTaken.
        """
        before = self._clock() - self._interval
        is_due = or_(EvidenceTree.monitored_at.is_(None), EvidenceTree.monitored_at < before)
        query = select(EvidenceTree.tenant_id).where(is_due).order_by(EvidenceTree.monitored_at)
        async with self._store.read() as session:
            tenant_id = await session.scalar(query.limit(1))
        if tenant_id is None:
            return False
        async with self._lease.hold() as lease, lease.renewed():
            await self.record(await self.compare(tenant_id), self._by)
        return True

    async def record(self, comparison: Comparison, by: AuditContext) -> None:
        """Note when a log was compared; differences are a row of it."""
        async with self._store.write() as work:
            await work.session.execute(
                update(EvidenceTree)
                .where(EvidenceTree.tenant_id == comparison.tenant_id)
                .values(monitored_at=work.now)
            )
            if comparison.differences:
                envelope = EvidenceDiffers(
                    differences=comparison.differences[:NAMED_MAX],
                    count=len(comparison.differences),
                    checkpoint_size=comparison.size,
                )
                work.record(comparison.tenant_id, envelope, by)
        self._found[comparison.tenant_id] = len(comparison.differences)
        self._differences.set(sum(self._found.values()))
        for difference in comparison.differences:
            _log.error("evidence_differs", log=comparison.name, difference=difference)

    async def compare(
        self, tenant_id: str, held: Sequence[Note] = (), on_rows: OnRows = lambda rows: None
    ) -> Comparison:
        """Compare a log with its rows, and with the checkpoints of it in `held`."""
        done = Comparison(tenant_id)
        try:
            await self._compare(done, held, on_rows)
        except StoreUnreachable:
            raise
        except StoreFault as fault:
            done.differences.append(str(fault))
        return done

    async def _compare(self, done: Comparison, held: Sequence[Note], on_rows: OnRows) -> None:
        async with self._store.read() as session:
            tree = await find_tree(session, done.tenant_id)
            if tree is None:
                return
            last = await last_checkpoint(session, done.tenant_id)
            tiles = await list_tiles(session, tree)
            of_tenant = EvidenceCheckpoint.tenant_id == tree.tenant_id
            checkpoints = await session.scalar(
                select(func.count()).select_from(EvidenceCheckpoint).where(of_tenant)
            )
            generations = await session.scalars(
                select(EvidenceCheckpoint.generation).where(of_tenant).distinct()
            )
            names = [log_name(tree.origin, number) for number in generations]
            keys = {name: await verifier_keys(session, name) for name in names}
        done.name, done.size = tree.name, tree.size
        if last is None or (last.size, last.last_seq) != (tree.size, tree.last_seq):
            done.differences.append("the tree is not that of its last checkpoint")
        signed, whole, complete = _Signed(done, keys), CompactRange(), list[bytes]()
        for note in held:
            signed.add_held(note)
        for number, first, end in tiles:
            async with self._store.read() as session:
                for checkpoint in await list_checkpoints(session, tree, number):
                    signed.add(tree, checkpoint)
            found = await self._find_tile(tree, number, first, end)
            if found.differences:  # rows may have been pruned meanwhile: look again
                found = await self._find_tile(tree, number, first, end)
            done.differences += found.differences
            done.rows += found.rows
            on_rows(found.rows)
            for group in found.groups:
                signed.pass_group(whole, group)
            complete += [group.root for group in found.groups if group.is_complete]
        if done.checkpoints != checkpoints:
            text = f"{checkpoints} checkpoints are stored, {done.checkpoints} of sizes it had"
            done.differences.append(text)
        await self._compare_levels(done, tree, complete)
        if whole.size != tree.size and not done.differences:
            done.differences.append(f"the tree has {whole.size} rows instead of {tree.size}")

    async def _find_tile(self, tree: TreeState, number: int, first: int, end: int) -> _Tile:
        # A row before the first one of the tree is as wrong as any between two others.
        first = 0 if number == 0 else first
        async with self._store.read() as session:
            groups = await list_groups(session, tree, number)
            hashes = split(
                (await session.get_one(EvidenceTile, (tree.tenant_id, 1, number))).hashes
            )[: tree.size // GROUP - number * GROUP]
        snapshot = await self._store.snapshot(tree.tenant_id)
        async with self._store.read() as session:
            keys = await load_day_keys(session, tree.tenant_id, days_between(snapshot, first, end))
        tile = _Tile()
        leaves: list[tuple[int, bytes]] = []
        try:
            read = partial(leaves_between, self._lake.segments, snapshot, first, end, keys)
            stored = await self._lake.run_in_thread(read)
            leaves = list(zip(stored.seqs, split(stored.hashes), strict=True))
        except StoreUnreachable:
            raise
        except StoreFault as fault:
            tile.differences.append(str(fault))
        tile.rows = len(leaves)
        for at, located in enumerate(groups):
            start = 0 if at == 0 else bisect_left(leaves, (located.group.first_seq, b""))
            own = leaves[start : bisect_left(leaves, (located.group.end_seq, b""))]
            tile.add(located, own, hashes[at] if at < len(hashes) else None, tree.tail)
        return tile

    async def _compare_levels(self, done: Comparison, tree: TreeState, hashes: list[bytes]) -> None:
        """Compare the tiles from level 2 on with those below."""
        for level in range(2, 8):
            whole = range(0, len(hashes) - GROUP + 1, GROUP)
            hashes = [root_of(hashes[at : at + GROUP]) for at in whole]
            async with self._store.read() as session:
                stored = await session.scalars(
                    select(EvidenceTile)
                    .where(EvidenceTile.tenant_id == tree.tenant_id, EvidenceTile.level == level)
                    .order_by(EvidenceTile.number)
                )
                content = b"".join(tile.hashes for tile in stored)
            if not content.startswith(b"".join(hashes)):  # it may have grown meanwhile
                text = f"the tiles of level {level} have other hashes than those below them"
                done.differences.append(text)
