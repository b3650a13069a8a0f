"""Makes proofs from the tree and the rows, as of the last checkpoint."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from analytics.evidence.canonical import entries
from analytics.evidence.groups import Group, LeavesDiffer, days_between, leaves_of, split_by_day
from analytics.evidence.merkle import GROUP, Tree, WrongProof, leaf_hash, verify_inclusion
from analytics.evidence.notes import Checkpoint, Note, VerifierKey, inclusion_text
from analytics.model.filters import parse_query
from analytics.model.log_envelopes import AuditPruned
from analytics.model.schema import audit_id
from service.audit.evidence.keys import read_verifier_keys
from service.audit.evidence.trees import (
    LocatedGroup,
    StoredCheckpoint,
    Tiles,
    TreeState,
    log_name,
    read_checkpoint,
    read_day_keys,
    read_group,
    read_group_of_seq,
    read_tiles,
    read_tree,
)
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
from service.store.transaction import Transaction

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
        return inclusion_text(self.index, self.hashes, self.note)


@dataclass(frozen=True, slots=True)
class _Found:
    """A row's group, the checkpoint that covers it, and what its proof is made of."""

    tree: TreeState
    signed: StoredCheckpoint
    keys: list[VerifierKey]
    located: LocatedGroup
    ends: list[LocatedGroup]
    tiles: Tiles
    day_keys: dict[date, bytes]


def note_of(origin: str, signed: EvidenceCheckpoint | StoredCheckpoint) -> str:
    """The checkpoint of a log of this origin as a signed note."""
    text = Checkpoint(log_name(origin, signed.generation), signed.size, signed.root).text
    return str(Note(text, tuple(signed.signatures.removesuffix("\n").split("\n"))))


@dataclass(frozen=True, slots=True)
class Prover:
    """Makes the proofs of one organisation, whose rows are those of `log`."""

    store: Store
    log: TenantLog

    async def inclusion(self, seq: int, size: int | None = None) -> InclusionOfRow:
        """The proof of a row that may be seen, by the checkpoint of a size (None: the last one).

        Raises AuditRowNotFound, CHECKPOINT_NOT_FOUND, RowPruned, NotSignedYet, and LeavesDiffer
        if it is not as it was signed: also if rows around it were pruned after `log` was opened.
        """
        found = await self.store.read_at_once(partial(self._look, seq=seq, size=size))
        if found is None:
            if (await self.log.row(seq)).num_rows == 0:
                raise AuditRowNotFound
            raise NotSignedYet
        located, group = found.located, found.located.group
        if located.is_pruned or seq in {leaf.seq for leaf in located.pruned}:
            raise await self._pruned(seq)
        rows = await self._rows(group)
        row = rows.filter(pc.equal(rows.column("seq"), seq))
        if row.num_rows == 0 or not self.log.shows(row.column("created_at")[0].as_py()):
            raise AuditRowNotFound
        stored = leaves_of(split_by_day(rows), self.log.org.id, found.day_keys)
        leaves = {end.group.number: await self._leaves(end) for end in found.ends}
        leaves[group.number] = group.hashes(stored, located.pruned)
        places = group.places(stored.seqs, located.pruned)
        index = group.first_index + next(place for place, other in places if other == seq)
        ((day, _),) = split_by_day(row)
        (entry,) = entries(row, self.log.org.id, found.day_keys[day])
        size, tree = found.signed.size, found.tree
        hashes = _tree(tree, found.tiles, leaves).inclusion(index, size)
        try:
            verify_inclusion(leaf_hash(entry), index, size, hashes, found.signed.root)
        except WrongProof as error:
            raise LeavesDiffer(f"row {audit_id(seq)} is not as it was signed") from error
        return InclusionOfRow(
            entry, index, size, hashes, note_of(tree.origin, found.signed), found.keys
        )

    def _look(self, transaction: Transaction, seq: int, size: int | None) -> _Found | None:
        """What the database has for the proof of a row; None of one that is not signed yet."""
        tree = read_tree(transaction, self.log.org.id)
        if tree is None:
            return None
        signed = read_checkpoint(transaction, tree, size)
        if signed is None and size is not None:
            raise CHECKPOINT_NOT_FOUND
        if signed is None or seq > signed.last_seq:
            return None
        located = read_group_of_seq(transaction, tree, seq)
        if located is None:
            raise AuditRowNotFound
        positions = [located.group.first_index, signed.size]
        return _Found(
            tree=tree,
            signed=signed,
            keys=read_verifier_keys(transaction, log_name(tree.origin, signed.generation)),
            located=located,
            # The last group is in the tree itself.
            ends=self._ends(transaction, tree, *{signed.size} - {tree.size}),
            tiles=read_tiles(transaction, tree.tenant_id, tree.size, positions),
            day_keys=self._day_keys(transaction, located.group),
        )

    async def consistency(self, old: int, new: int | None) -> tuple[int, list[bytes]]:
        """The proof that the first `old` rows begin the first `new` (None: all), and that size.

        Raises NO_CHECKPOINT, SIZES_INVALID, LEAVES_PRUNED, LeavesDiffer.
        """

        def look(transaction: Transaction) -> tuple[TreeState, int, Tiles, list[LocatedGroup]]:
            tree = read_tree(transaction, self.log.org.id)
            if tree is None:
                raise NO_CHECKPOINT
            last = tree.size if new is None else new
            if not 0 <= old <= last <= tree.size:
                raise SIZES_INVALID(value=str(tree.size))
            positions = [max(old - 1, 0), old, last]
            tiles = read_tiles(transaction, tree.tenant_id, tree.size, positions)
            return tree, last, tiles, self._ends(transaction, tree, old, last)

        tree, last, tiles, ends = await self.store.read_at_once(look)
        leaves = {end.group.number: await self._leaves(end) for end in ends}
        return last, _tree(tree, tiles, leaves).consistency(old, last)

    async def tile(self, level: int, number: int) -> bytes:
        """The hashes of a tile, as many as there are. Raises LeavesDiffer, LEAVES_PRUNED."""

        def look(transaction: Transaction) -> bytes | LocatedGroup:
            tree = read_tree(transaction, self.log.org.id)
            if tree is None or number << 8 * (level + 1) >= tree.size:
                return b""
            if level == 0:
                return self._whole(transaction, tree, number)
            first = number << 8 * (level + 1)
            tiles = read_tiles(transaction, tree.tenant_id, tree.size, [first])
            return tiles[level, number].hashes if (level, number) in tiles else b""

        found = await self.store.read_at_once(look)
        return found if isinstance(found, bytes) else await self._leaves(found)

    def _whole(self, transaction: Transaction, tree: TreeState, number: int) -> LocatedGroup:
        located = read_group(transaction, tree, number)
        if located.is_pruned:
            first = located.group.first_index
            raise LEAVES_PRUNED(value=str(first), first=str(first + GROUP))
        return located

    def _ends(self, transaction: Transaction, tree: TreeState, *sizes: int) -> list[LocatedGroup]:
        """The groups in which these sizes end. Raises LEAVES_PRUNED."""
        # The tree has the leaves of its last group itself.
        last = tree.size // GROUP
        numbers = {size // GROUP for size in sizes if size % GROUP and size // GROUP != last}
        return [self._whole(transaction, tree, number) for number in sorted(numbers)]

    async def _leaves(self, located: LocatedGroup) -> bytes:
        """The hashes of all leaves of a group."""
        keys = await self.store.read_at_once(partial(self._day_keys, group=located.group))
        rows = await self._rows(located.group)
        leaves = leaves_of(split_by_day(rows), self.log.org.id, keys)
        return located.group.hashes(leaves, located.pruned)

    async def _rows(self, group: Group) -> pa.Table:
        """The rows of a group that are stored; one more than there should be, if there are more."""
        return await self.log.rows_between(group.first_seq, group.end_seq, GROUP + 1)

    def _day_keys(self, transaction: Transaction, group: Group) -> dict[date, bytes]:
        days = days_between(self.log.snapshot, group.first_seq, group.end_seq)
        return read_day_keys(transaction, self.log.org.id, days)

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
