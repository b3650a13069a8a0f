"""Makes proofs from the tree and the rows, as of the last checkpoint."""

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from analytics.evidence.canonical import entries
from analytics.evidence.groups import (
    Group,
    Leaf,
    LeavesDiffer,
    Rows,
    days_between,
    leaf_parts,
    split_by_day,
)
from analytics.evidence.merkle import (
    GROUP,
    Tree,
    WrongProof,
    leaf_hash,
    tiles_of,
    verify_inclusion,
)
from analytics.evidence.notes import Checkpoint, Note, VerifierKey, inclusion_text
from analytics.model.filters import parse_query
from analytics.model.instants import utc_day
from analytics.model.log_envelopes import AuditPruned
from analytics.model.schema import audit_id
from service.audit.evidence.keys import read_verifier_keys
from service.audit.evidence.trees import (
    StoredCheckpoint,
    Tile,
    Tiles,
    TreeState,
    log_name,
    read_checkpoint,
    read_day_keys,
    read_group,
    read_group_of_seq,
    read_tile,
    read_tree,
)
from service.audit.refusals import (
    CHECKPOINT_NOT_FOUND,
    LEAVES_PRUNED,
    NO_CHECKPOINT,
    ROW_PRUNED,
    SIZES_INVALID,
    AuditRowNotFound,
    NotSignedYet,
)
from service.audit.tenant_log import TenantLog
from service.core.errors import Refusal
from service.store.store import Store
from service.store.tables import EvidenceCheckpoint
from service.store.transaction import Transaction
from service.web.models import Answer, NonNegative

Size = Annotated[int, Meta(ge=1, le=2**63 - 1)]

PRUNES_MAX: Final = 1_000
"""The prune entries that are searched for the one that deleted a row, newest first."""


class RowProof(Answer):
    """The proof that a row is in the organisation's log, as its last checkpoint says."""

    org: str
    id: str
    index: NonNegative
    size: Size
    entry: Annotated[str, Meta(description="The text whose UTF-8 bytes are the leaf.")]
    hashes: Annotated[list[str], Meta(description="From the leaf's sibling up, in base64.")]
    note: Annotated[str, Meta(description="The checkpoint that the proof leads to.")]
    keys: Annotated[list[str], Meta(description="The keys of the log, the newest one first.")]
    proof: Annotated[str, Meta(description="The proof as a file (C2SP tlog-proof).")]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a proof is made of: tiles of a tree, and groups whose leaves are computed anew.

    `keys` are those of the days that rows of these groups may be of.
    """

    tree: TreeState
    tiles: Tiles
    groups: list[Group]
    keys: dict[date, bytes]


_Found = tuple[StoredCheckpoint, list[VerifierKey], _Parts]


def in_base64(hashes: Iterable[bytes]) -> list[str]:
    """Hashes as the API answers them."""
    return [base64.b64encode(each).decode() for each in hashes]


def note_of(origin: str, signed: EvidenceCheckpoint | StoredCheckpoint) -> str:
    """The checkpoint of a log of this origin as a signed note."""
    text = Checkpoint(log_name(origin, signed.generation), signed.size, signed.root).text
    return str(Note(text, tuple(signed.signatures.removesuffix("\n").split("\n"))))


@dataclass(frozen=True, slots=True)
class Prover:
    """Makes the proofs of one organisation, whose rows are those of `log`."""

    store: Store
    log: TenantLog

    async def inclusion(self, seq: int, size: int | None = None) -> RowProof:
        """The proof of a row that may be seen, by the checkpoint of a size (None: the last one).

        Raises AuditRowNotFound, CHECKPOINT_NOT_FOUND, ROW_PRUNED, NotSignedYet, and LeavesDiffer
        if it is not as it was signed: also if rows around it were pruned after `log` was opened.
        """
        found = await self.store.read_at_once(self._look, seq, size)
        if found is None:
            if (await self.log.row(seq)).num_rows == 0:
                raise AuditRowNotFound
            raise NotSignedYet
        signed, log_keys, parts = found
        group = parts.groups.pop()
        if group.rows is Rows.PRUNED or seq in {leaf.seq for leaf in group.pruned}:
            raise await self._pruned(seq)
        rows = await self._rows(group)
        row = rows.filter(pc.equal(rows.column("seq"), seq))
        created_at = row.column("created_at")[0].as_py() if row.num_rows else None
        if created_at is None or not self.log.shows(created_at):
            raise AuditRowNotFound
        leaves = self._leaves(group, rows, parts.keys)
        index = group.first_index + [leaf_seq for leaf_seq, _ in leaves].index(seq)
        (entry,) = entries(row, self.log.org.id, parts.keys[utc_day(created_at)])
        tree = await self._tree(parts, {group.number: leaves})
        hashes = tree.inclusion(index, signed.size)
        try:
            verify_inclusion(leaf_hash(entry), index, signed.size, hashes, signed.root)
        except WrongProof as error:
            raise LeavesDiffer(f"row {audit_id(seq)} is not as it was signed") from error
        note = note_of(parts.tree.origin, signed)
        return RowProof(
            org=self.log.org.slug,
            id=audit_id(seq),
            index=index,
            size=signed.size,
            entry=entry.decode(),
            hashes=in_base64(hashes),
            note=note,
            keys=[str(key) for key in log_keys],
            proof=inclusion_text(index, hashes, note),
        )

    def _look(self, transaction: Transaction, seq: int, size: int | None) -> _Found | None:
        """The checkpoint that covers a row, the log's keys, and what its proof is made of.

        Its own group is the last one. None of a row that is not signed yet.
        """
        tree = read_tree(transaction, self.log.org.id)
        if tree is None:
            return None
        signed = read_checkpoint(transaction, tree, size)
        if signed is None and size is not None:
            raise CHECKPOINT_NOT_FOUND
        if signed is None or seq > signed.last_seq:
            return None
        group = read_group_of_seq(transaction, tree, seq)
        if group is None:
            raise AuditRowNotFound
        needed = tiles_of(lambda whole: whole.inclusion(group.first_index, signed.size), tree.size)
        parts = self._read_parts(transaction, tree, needed - {(0, group.number)}, group)
        keys = read_verifier_keys(transaction, log_name(tree.origin, signed.generation))
        return signed, keys, parts

    async def consistency(self, old: int, new: int | None) -> tuple[int, list[bytes]]:
        """The proof that the first `old` rows begin the first `new` (None: all), and that size.

        Raises NO_CHECKPOINT, SIZES_INVALID, LEAVES_PRUNED, LeavesDiffer.
        """

        def look(transaction: Transaction) -> tuple[int, _Parts]:
            tree = read_tree(transaction, self.log.org.id)
            if tree is None:
                raise NO_CHECKPOINT
            last = tree.size if new is None else new
            if not 0 <= old <= last <= tree.size:
                raise SIZES_INVALID(value=str(tree.size))
            needed = tiles_of(lambda whole: whole.consistency(old, last), tree.size)
            return last, self._read_parts(transaction, tree, needed)

        last, parts = await self.store.read_at_once(look)
        return last, (await self._tree(parts)).consistency(old, last)

    async def tile(self, level: int, number: int) -> bytes:
        """The hashes of a tile, as many as there are. Raises LeavesDiffer, LEAVES_PRUNED."""

        def look(transaction: Transaction) -> _Parts | None:
            tree = read_tree(transaction, self.log.org.id)
            if tree is None or number << 8 * (level + 1) >= tree.size:
                return None
            return self._read_parts(transaction, tree, {(level, number)})

        parts = await self.store.read_at_once(look)
        return b"" if parts is None else (await self._tree(parts)).tile(level, number)

    async def _tree(self, parts: _Parts, known: dict[int, list[Leaf]] | None = None) -> Tree:
        """The tree of these tiles and groups, and of groups whose leaves are `known`."""
        leaves = known or {}
        for group in parts.groups:
            leaves[group.number] = self._leaves(group, await self._rows(group), parts.keys)
        hashes = {
            (0, parts.tree.size // GROUP): parts.tree.tail,
            **{place: tile.hashes for place, tile in parts.tiles.items()},
            **{(0, number): b"".join(leaf for _, leaf in own) for number, own in leaves.items()},
        }
        return Tree(parts.tree.size, lambda level, number: hashes.get((level, number), b""))

    async def _rows(self, group: Group) -> pa.Table:
        """The rows of a group that are stored; one more than there should be, if there are more."""
        return await self.log.rows_between(group.first_seq, group.end_seq, GROUP + 1)

    def _leaves(self, group: Group, rows: pa.Table, keys: dict[date, bytes]) -> list[Leaf]:
        parts = leaf_parts(split_by_day(rows), self.log.org.id, keys)
        return group.leaves(sorted(chain.from_iterable(parts)))

    async def _pruned(self, seq: int) -> Refusal:
        """What to say of a row that was deleted by retention: by which entry of the log."""
        rows = await self.log.page(parse_query({"event": [AuditPruned.event]}), PRUNES_MAX)
        wanted = audit_id(seq)
        for entry in rows.select(["seq", "payload"]).to_pylist():
            said: dict[str, Any] = msgspec.json.decode(entry["payload"])
            first, last = said.get("first_id"), said.get("last_id")
            if first is not None and last is not None and first <= wanted <= last:
                text = f"audit row {audit_id(entry['seq'])} says so, and can be proved"
                return ROW_PRUNED(first=first, last=last, value=text)
        text = "the row that said so is deleted, too"
        return ROW_PRUNED(first=wanted, last=wanted, value=text)

    def _read_parts(
        self,
        transaction: Transaction,
        tree: TreeState,
        needed: Collection[tuple[int, int]],
        *others: Group,
    ) -> _Parts:
        """The tiles that are stored; groups of those of level 0, and `others`.

        Raises LEAVES_PRUNED.
        """
        tiles: Tiles = {}
        groups: list[Group] = []
        for level, number in sorted(needed):
            if level:
                tiles[level, number] = (
                    read_tile(transaction, tree.tenant_id, level, number) or Tile()
                )
            elif number != tree.size // GROUP:  # the tree has the leaves of its last group itself
                group = read_group(transaction, tree, number)
                if group.rows is Rows.PRUNED:
                    first = group.first_index
                    raise LEAVES_PRUNED(value=str(first), first=str(first + GROUP))
                groups.append(group)
        groups += others
        days: set[date] = set()
        for group in groups:
            days |= days_between(self.log.snapshot, group.first_seq, group.end_seq)
        return _Parts(tree, tiles, groups, read_day_keys(transaction, tree.tenant_id, days))
