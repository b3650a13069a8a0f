"""Makes proofs from the tree and the rows, as of the last checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.canonical import entries
from analytics.evidence.groups import LeavesDiffer, days_between, leaves_between
from analytics.evidence.merkle import GROUP, Tree, WrongProof, leaf_hash, verify_inclusion
from analytics.evidence.notes import Checkpoint, Note, VerifierKey, proof_text
from analytics.model.filters import parse_query
from analytics.model.instants import utc_day
from analytics.model.log_envelopes import AuditPruned
from analytics.model.schema import audit_id
from service.audit.evidence.keys import verifier_keys
from service.audit.evidence.trees import (
    LocatedGroup,
    Tiles,
    TreeState,
    day_keys,
    find_group_of_seq,
    find_tree,
    get_group,
    last_checkpoint,
    load_tiles,
    log_name,
)
from service.audit.lake import Lake
from service.audit.refusals import (
    CHECKPOINT_NOT_FOUND,
    LEAVES_PRUNED,
    NO_CHECKPOINT,
    SIZES_INVALID,
    AuditRowNotFound,
    NotSignedYet,
    RowPruned,
)
from service.audit.tenant_log import TenantLog
from service.store.store import Store
from service.store.tables import EvidenceCheckpoint

PRUNES_MAX: Final = 1_000
"""The prune entries that are searched for the one that deleted a row, newest first."""


@dataclass(frozen=True, slots=True)
class InclusionOfRow:
    """A row's entry, its leaf's index, and the proof that leads to the checkpoint `note`."""

    entry: bytes
    index: int
    size: int
    hashes: list[bytes]
    note: str
    keys: list[VerifierKey]

    @property
    def text(self) -> str:
        """The proof as a file."""
        return proof_text(self.index, self.hashes, self.note)


@dataclass(frozen=True, slots=True)
class _Signed:
    """A tree and its last checkpoint."""

    tree: TreeState
    checkpoint: EvidenceCheckpoint
    keys: list[VerifierKey]


def note_of(origin: str, signed: EvidenceCheckpoint) -> str:
    """The checkpoint of a log of this origin as a signed note."""
    text = Checkpoint(log_name(origin, signed.generation), signed.size, signed.root).text
    return str(Note(text, tuple(signed.signatures.removesuffix("\n").split("\n"))))


@dataclass(frozen=True, slots=True)
class Prover:
    """Makes the proofs of one organisation, whose rows are those of `log`."""

    store: Store
    lake: Lake
    log: TenantLog

    async def inclusion(self, seq: int, size: int | None = None) -> InclusionOfRow:
        """The proof of a row that may be seen, by the checkpoint of a size (None: the last one).

        Raises AuditRowNotFound, CHECKPOINT_NOT_FOUND, RowPruned, NotSignedYet, and LeavesDiffer
        if it is not as it was signed: also if rows around it were pruned after `log` was opened.
        """
        located: LocatedGroup | None = None
        async with self.store.read() as session:
            signed = await self._signed(session, size)
            if signed is not None:
                located = await find_group_of_seq(session, signed.tree, seq)
        if located and (located.is_pruned or seq in {leaf.seq for leaf in located.pruned}):
            raise await self._pruned(seq)
        rows = await self.log.row(seq)
        if rows.num_rows == 0:
            raise AuditRowNotFound
        if signed is None or located is None or seq > signed.checkpoint.last_seq:
            raise NotSignedYet
        size = signed.checkpoint.size
        day = utc_day(rows.column("created_at")[0].as_py())
        async with self.store.read() as session:
            first = located.group.first_index
            tiles = await load_tiles(session, self.log.org.id, [first, size])
            keys = await day_keys(session, self.log.org.id, [day])
            ends = [] if size == signed.tree.size else await self._ends(session, signed.tree, size)
        leaves = {end.group.number: (await self._leaves(end))[0] for end in ends}
        leaves[located.group.number], seqs = await self._leaves(located)
        places = {found: place for place, found in located.group.places(seqs, located.pruned)}
        index = first + places[seq]
        path = _tree(signed.tree, tiles, leaves).inclusion(index, size)
        (entry,) = entries(rows, self.log.org.id, keys.get(day, b""))
        try:
            verify_inclusion(leaf_hash(entry), index, size, path, signed.checkpoint.root)
        except WrongProof as error:
            raise LeavesDiffer(f"row {audit_id(seq)} is not as it was signed") from error
        note = note_of(signed.tree.origin, signed.checkpoint)
        return InclusionOfRow(entry, index, size, path, note, signed.keys)

    async def consistency(self, old: int, new: int | None) -> tuple[int, list[bytes]]:
        """The proof that the first `old` rows begin the first `new` (None: all), and that size.

        Raises NO_CHECKPOINT, SIZES_INVALID, LEAVES_PRUNED, LeavesDiffer.
        """
        async with self.store.read() as session:
            tree = await find_tree(session, self.log.org.id)
            if tree is None:
                raise NO_CHECKPOINT
            new = tree.size if new is None else new
            if not 0 <= old <= new <= tree.size:
                raise SIZES_INVALID(value=str(tree.size))
            tiles = await load_tiles(session, tree.tenant_id, [max(old - 1, 0), old, new])
            ends = await self._ends(session, tree, old, new)
        leaves = {end.group.number: (await self._leaves(end))[0] for end in ends}
        return new, _tree(tree, tiles, leaves).consistency(old, new)

    async def tile(self, level: int, number: int) -> bytes:
        """The hashes of a tile, as many as there are. Raises LeavesDiffer, LEAVES_PRUNED."""
        async with self.store.read() as session:
            tree = await find_tree(session, self.log.org.id)
            if tree is None:
                return b""
            if level:
                tiles = await load_tiles(session, tree.tenant_id, [number << 8 * (level + 1)])
                return tiles[level, number].hashes if (level, number) in tiles else b""
            if number * GROUP >= tree.size:
                return b""
            located = await self._whole(session, tree, number)
        return (await self._leaves(located))[0]

    async def _whole(self, session: AsyncSession, tree: TreeState, number: int) -> LocatedGroup:
        located = await get_group(session, tree, number)
        if located.is_pruned:
            first = located.group.first_index
            raise LEAVES_PRUNED(value=str(first), first=str(first + GROUP))
        return located

    async def _ends(
        self, session: AsyncSession, tree: TreeState, *sizes: int
    ) -> list[LocatedGroup]:
        """The groups in which these sizes end. Raises LEAVES_PRUNED."""
        numbers = {size // GROUP for size in sizes if size % GROUP}
        return [await self._whole(session, tree, number) for number in sorted(numbers)]

    async def _signed(self, session: AsyncSession, size: int | None) -> _Signed | None:
        tree = await find_tree(session, self.log.org.id)
        checkpoint = await last_checkpoint(session, self.log.org.id)
        if tree is not None and size is not None:
            place = (tree.tenant_id, tree.generation, size)
            checkpoint = await session.get(EvidenceCheckpoint, place)
            if checkpoint is None:
                raise CHECKPOINT_NOT_FOUND
        if tree is None or checkpoint is None:
            return None
        name = log_name(tree.origin, checkpoint.generation)
        return _Signed(tree, checkpoint, await verifier_keys(session, name))

    async def _leaves(self, located: LocatedGroup) -> tuple[bytes, Sequence[int]]:
        """The hashes of a group's leaves, and the seqs of those of its rows that are stored."""
        group, snapshot = located.group, self.log.snapshot
        days = days_between(snapshot, group.first_seq, group.end_seq)
        async with self.store.read() as session:
            keys = await day_keys(session, self.log.org.id, days)
        read = partial(
            leaves_between, self.lake.segments, snapshot, group.first_seq, group.end_seq, keys
        )
        leaves = await self.log.compute(read)
        return group.hashes(leaves, located.pruned), leaves.seqs

    async def _pruned(self, seq: int) -> RowPruned:
        """What to say of a row that was deleted by retention: by which entry of the log."""
        query = parse_query({"event": [AuditPruned.event]})
        rows = await self.log.page(query, PRUNES_MAX)
        wanted = audit_id(seq)
        for number, payload in zip(
            rows.column("seq").to_pylist(), rows.column("payload").to_pylist(), strict=True
        ):
            said: dict[str, Any] = msgspec.json.decode(payload)
            first, last = said.get("first_id"), said.get("last_id")
            if first is not None and last is not None and first <= wanted <= last:
                return RowPruned(first, last, audit_id(number))
        return RowPruned(wanted, wanted, None)


def _tree(state: TreeState, tiles: Tiles, leaves: dict[int, bytes]) -> Tree:
    """The tree of these tiles, and these leaves of groups; those of its last group it has."""
    last = state.size // GROUP

    def tile(level: int, number: int) -> bytes:
        if level == 0:
            return leaves.get(number) or (state.tail if number == last else b"")
        return tiles[level, number].hashes if (level, number) in tiles else b""

    return Tree(state.size, tile)
