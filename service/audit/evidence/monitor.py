"""Compares the rows with the tree, and the tree with all that was signed.

Every leaf is computed again from its row. What is changed, missing or added behind the service's
back is named: the ids between which it is, the tile or the checkpoint. A background job does it as
often as stored files are verified, and records differences in the log itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy import func, or_, select, update

from analytics.evidence.groups import (
    Group,
    Leaf,
    LeavesDiffer,
    Rows,
    days_between,
    leaves_between,
)
from analytics.evidence.merkle import GROUP, CompactRange, root_of, split
from analytics.evidence.notes import Checkpoint, InvalidNote, Note, VerifierKey
from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.log_envelopes import EvidenceDiffers
from analytics.model.rows import AuditContext
from service.access.callers import service_context
from service.audit.evidence.keys import read_verifier_keys
from service.audit.evidence.prover import note_of
from service.audit.evidence.trees import (
    StoredCheckpoint,
    TreeState,
    log_name,
    read_bounds,
    read_checkpoints,
    read_day_keys,
    read_groups,
    read_last_checkpoint,
    read_tile,
    read_tree,
    set_rows,
)
from service.audit.leased_job import MeasuredJob
from service.store.lost_segments import list_losses
from service.store.tables import EvidenceCheckpoint, EvidenceTile, EvidenceTree, LostSegment
from service.store.transaction import within

NAMED_MAX: Final = 10
"""The differences that a row of the log names; a command names all."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Comparison:
    """What was compared of one organisation, and how it differs, in sentences."""

    tenant_id: str
    log: str = ""
    size: int = 0
    rows: int = 0
    checkpoints: int = 0
    held: int = 0
    lost: list[int] = field(default_factory=list)
    """Groups of which rows were given up, which are differences this once."""

    differences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Tile:
    """A tile of level 1 as it was found: what was signed of each group, and its leaves if known."""

    rows: int = 0
    differences: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    groups: list[tuple[bytes, Sequence[Leaf]]] = field(default_factory=list)

    def add(
        self,
        group: Group,
        rows: Sequence[Leaf],
        root: bytes,
        tail: bytes,
        losses: Sequence[LostSegment],
    ) -> None:
        """Compare a group's rows with its root or, if it is not full, with the tree's tail."""
        leaves: Sequence[Leaf] = ()
        try:
            if group.rows is not Rows.LOST:
                leaves = group.leaves(rows)
        except LeavesDiffer as fault:
            self.differences.append(str(fault))
            touching = (loss.touches(group.first_seq, group.end_seq) for loss in losses)
            if len(rows) < group.unpruned and any(touching):
                self.lost.append(group.number)
        hashes = [leaf for _, leaf in leaves]
        if leaves and (root_of(hashes) != root if root else b"".join(hashes) != tail):
            self.differences.append(f"{group.span}: one of them is not as it was signed")
        if not root and not leaves:
            leaves = [(0, leaf) for leaf in split(tail)]
        self.groups.append((root, leaves))


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
        said = f"the checkpoint of size {signed.size}"
        name = log_name(tree.origin, signed.generation)
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

    def pass_group(self, whole: CompactRange, root: bytes, leaves: Sequence[Leaf]) -> None:
        """Add a group to the tree, and compare the sizes that end in it.

        `root` is that of a full group. Without `leaves` nothing is left to compare sizes within it
        with.
        """
        ends = [size for size in self.wanted if whole.size < size <= whole.size + GROUP]
        if leaves and (ends or not root):
            for seq, leaf in leaves:
                whole.add(leaf)
                self._compare(whole, seq)
        elif root:
            whole.add(root, GROUP.bit_length() - 1)
            self._compare(whole, 0)
        for size in ends:
            self.wanted.pop(size, None)

    def _compare(self, whole: CompactRange, last_seq: int) -> None:
        for said, root, seq in self.wanted.pop(whole.size, ()):
            if root != whole.root or (seq and last_seq and seq != last_seq):
                self.done.differences.append(f"{said} has another root or end than its rows")


@dataclass(eq=False)
class Monitor(MeasuredJob):
    """Compares each organisation's log; under a lease, so that one process of all nodes does it."""

    def __post_init__(self) -> None:
        self._differences = self._metrics.gauge(
            "countersign_evidence_differences",
            "Differences between logs and what was signed of them, when last compared.",
            mode="livemax",
        )
        self._found: dict[str, int] = {}

    async def compare_due(self) -> bool:
        """Compare the log that waited longest, if that is due, and record differences.

        True if there may be more. Raises LeaseTaken.
        """
        before = self._clock() - timedelta(seconds=self._settings.scrub_interval_s)
        is_due = or_(EvidenceTree.monitored_at.is_(None), EvidenceTree.monitored_at < before)
        query = select(EvidenceTree.tenant_id).where(is_due).order_by(EvidenceTree.monitored_at)
        async with self._store.read() as session:
            tenant_id = await session.scalar(query.limit(1))
        if tenant_id is None:
            return False
        async with self._lease.hold() as lease, lease.renewed():
            by = service_context(self._settings.platform_tenant_id)
            await self.record(await self.compare(tenant_id), by)
        return True

    async def record(self, comparison: Comparison, by: AuditContext) -> None:
        """Note when a log was compared; differences are a row of it, those of lost rows once."""
        async with self._store.write() as work:
            await work.session.execute(
                update(EvidenceTree)
                .where(EvidenceTree.tenant_id == comparison.tenant_id)
                .values(monitored_at=work.now)
            )
            if comparison.lost:
                lost = dict.fromkeys(comparison.lost, Rows.LOST)
                await set_rows(work.session, comparison.tenant_id, lost)
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
            _log.error("evidence_differs", log=comparison.log, difference=difference)

    async def compare(self, tenant_id: str, held: Sequence[Note] = ()) -> Comparison:
        """Compare a log with its rows, and with the checkpoints of it in `held`."""
        done = Comparison(tenant_id)
        try:
            await self._compare(done, held)
        except StoreUnreachable:
            raise
        except StoreFault as fault:
            done.differences.append(str(fault))
        return done

    async def _compare(self, done: Comparison, held: Sequence[Note]) -> None:
        async with self._store.read() as session:
            tree = await within(session, read_tree, done.tenant_id)
            if tree is None:
                return
            last = await within(session, read_last_checkpoint, done.tenant_id)
            bounds = await within(session, read_bounds, tree)
            losses = await list_losses(session, done.tenant_id)
            query = select(EvidenceCheckpoint.generation, func.count()).where(
                EvidenceCheckpoint.tenant_id == tree.tenant_id
            )
            lines = await session.execute(query.group_by(EvidenceCheckpoint.generation))
            counts = {log_name(tree.origin, number): count for number, count in lines}
            keys = {name: await within(session, read_verifier_keys, name) for name in counts}
        done.log, done.size = tree.name, tree.size
        if last is None or (last.size, last.last_seq) != (tree.size, tree.last_seq):
            done.differences.append("the tree is not that of its last checkpoint")
        signed = _Signed(done, keys)
        for note in held:
            signed.add_held(note)
        await self._compare_tiles(tree, signed, bounds, losses)
        if done.checkpoints != sum(counts.values()):
            done.differences.append(
                f"{sum(counts.values())} checkpoints are stored, {done.checkpoints} of sizes it had"
            )

    async def _compare_tiles(
        self,
        tree: TreeState,
        signed: _Signed,
        bounds: Sequence[tuple[int, int, int, bool]],
        losses: Sequence[LostSegment],
    ) -> None:
        done, whole, complete = signed.done, CompactRange(), list[bytes]()
        for number, first, end, _ in bounds:
            for checkpoint in await self._store.read_at_once(read_checkpoints, tree, number):
                signed.add(tree, checkpoint)
            found = await self._find_tile(tree, number, first, end, losses)
            if found.differences:  # rows may have been pruned meanwhile: look again
                found = await self._find_tile(tree, number, first, end, losses)
            done.differences += found.differences
            done.lost += found.lost
            done.rows += found.rows
            for root, leaves in found.groups:
                signed.pass_group(whole, root, leaves)
            complete += [root for root, _ in found.groups if root]
        await self._compare_levels(done, tree, complete)
        if whole.size != tree.size and not done.differences:
            done.differences.append(f"the tree has {whole.size} rows instead of {tree.size}")

    async def _find_tile(
        self, tree: TreeState, number: int, first: int, end: int, losses: Sequence[LostSegment]
    ) -> _Tile:
        # A row before the first one of the tree is as wrong as any between two others.
        first = 0 if number == 0 else first
        async with self._store.read() as session:
            groups = await within(session, read_groups, tree, number * GROUP, (number + 1) * GROUP)
            stored = await within(session, read_tile, tree.tenant_id, 1, number)
        snapshot = await self._store.snapshot(tree.tenant_id)
        days = days_between(snapshot, first, end)
        keys = await self._store.read_at_once(read_day_keys, tree.tenant_id, days)
        tile, leaves = _Tile(), list[Leaf]()
        try:
            leaves = await self._lake.run_in_thread(
                leaves_between, self._lake.segments, snapshot, first, end, keys
            )
        except StoreUnreachable:
            raise
        except StoreFault as fault:
            tile.differences.append(str(fault))
            losses = ()  # what cannot be read now is not lost
        tile.rows = len(leaves)
        hashes = split(stored.hashes if stored else b"")[: tree.size // GROUP - number * GROUP]
        for at, group in enumerate(groups):
            root = hashes[at] if at < len(hashes) else b""
            tile.add(group, group.among(leaves), root, tree.tail, losses)
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
