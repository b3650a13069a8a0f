"""The stored trees: their right edge, which grows, and the tiles that proofs are made of."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.groups import (
    Group,
    Leaves,
    LeavesDiffer,
    PrunedLeaf,
    pack_seqs,
    unpack_pruned,
    unpack_seqs,
)
from analytics.evidence.merkle import GROUP, HASH_BYTES, Tree, grow
from service.store.tables import (
    EvidenceCheckpoint,
    EvidenceDayKey,
    EvidenceTile,
    EvidenceTree,
    PrunedLeaves,
)

_BITS: Final = 8
_LEVELS: Final = range(1, 64 // _BITS)


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree as it stands: see EvidenceTree.

    `edges` are the hashes of the unfinished tile of each level from 1 on, and `first_seqs` those of
    the groups of the unfinished tile of level 1, an unfinished group among them.
    """

    tenant_id: str
    origin: str
    generation: int = 1
    size: int = 0
    last_seq: int = 0
    tail: bytes = b""
    min_index: int = 0
    suspended: str | None = None
    edges: tuple[bytes, ...] = ()
    first_seqs: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the log, and of the keys that sign it."""
        return log_name(self.origin, self.generation)


def log_name(origin: str, generation: int) -> str:
    """A log's name. After an accepted rollback it is another log: no size of one has two roots."""
    return origin if generation == 1 else f"{origin}/{generation}"


@dataclass(frozen=True, slots=True)
class TileChange:
    """A tile of the right edge as it is after a tree has grown."""

    level: int
    number: int
    hashes: bytes
    first_seqs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Extension:
    """A tree before and after it has grown, and how its tiles change."""

    before: TreeState
    after: TreeState
    tiles: tuple[TileChange, ...]
    root: bytes


def extend(state: TreeState, leaves: Leaves) -> Extension:
    """The tree with further leaves, whose seqs all are after its last one."""
    seqs = leaves.seqs
    if not seqs or seqs[0] <= state.last_seq:
        raise ValueError("a tree grows by rows that were accepted after its last one")
    growth = grow([state.tail, *state.edges], leaves.hashes)
    size = state.size + len(seqs)
    begun = range(-(-state.size // GROUP) * GROUP, size, GROUP)
    first_seqs = [*state.first_seqs, *(seqs[index - state.size] for index in begun)]
    tiles: list[TileChange] = []
    edges: list[bytes] = []
    for level in range(1, max(len(growth.levels), len(state.edges)) + 1):
        hashes = state.edges[level - 1] if level <= len(state.edges) else b""
        hashes += b"".join(growth.levels[level - 1]) if level <= len(growth.levels) else b""
        first = _number(state.size, level)
        tiles += _tiles(level, first, hashes, first_seqs if level == 1 else ())
        edges.append(hashes[(_number(size, level) - first) * GROUP * HASH_BYTES :])
    if not tiles:  # the first leaves, fewer than a group
        tiles = [TileChange(1, 0, b"", tuple(first_seqs))]
    after = replace(
        state,
        size=size,
        last_seq=seqs[-1],
        tail=growth.tail,
        edges=tuple(edges),
        first_seqs=tuple(first_seqs[(_number(size, 1) - _number(state.size, 1)) * GROUP :]),
    )
    edge = [growth.tail, *edges]
    return Extension(state, after, tuple(tiles), Tree(size, lambda level, _: edge[level]).root())


def _number(size: int, level: int) -> int:
    """The unfinished tile of a level of a tree; it may be empty."""
    return size >> _BITS * (level + 1)


def _tiles(
    level: int, first: int, hashes: bytes, first_seqs: Sequence[int]
) -> Iterable[TileChange]:
    """The tiles from number `first` on that these hashes and first seqs fill."""
    count = max(len(hashes) // HASH_BYTES, len(first_seqs))
    for at in range(0, count, GROUP):
        content = hashes[at * HASH_BYTES : (at + GROUP) * HASH_BYTES]
        yield TileChange(level, first + at // GROUP, content, tuple(first_seqs[at : at + GROUP]))


async def find_tree(session: AsyncSession, tenant_id: str) -> TreeState | None:
    """The organisation's tree with its right edge; None before its first row."""
    tree = await session.get(EvidenceTree, tenant_id)
    if tree is None:
        return None
    positions = [tree.size]
    tiles = await load_tiles(session, tenant_id, positions)
    edges = [
        tiles.get((level, _number(tree.size, level)), _NO_TILE).hashes
        for level in _LEVELS
        if tree.size >> _BITS * level
    ]
    edge = tiles.get((1, _number(tree.size, 1)), _NO_TILE)
    return TreeState(
        tenant_id=tenant_id,
        origin=tree.origin,
        generation=tree.generation,
        size=tree.size,
        last_seq=tree.last_seq,
        tail=tree.tail,
        min_index=tree.min_index,
        suspended=tree.suspended,
        edges=tuple(edges),
        first_seqs=edge.first_seqs,
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """A stored tile."""

    hashes: bytes
    first_seqs: tuple[int, ...] = ()
    pruned: bytes = b""


_NO_TILE: Final = Tile(b"")
Tiles = dict[tuple[int, int], Tile]


async def load_tiles(session: AsyncSession, tenant_id: str, positions: Collection[int]) -> Tiles:
    """The tiles of every level from 1 on that have these leaves below them, those that exist."""
    wanted = [
        and_(EvidenceTile.level == level, EvidenceTile.number.in_(numbers))
        for level in _LEVELS
        if (numbers := {_number(position, level) for position in positions})
    ]
    stored = await session.scalars(
        select(EvidenceTile).where(EvidenceTile.tenant_id == tenant_id, or_(*wanted))
    )
    return {(tile.level, tile.number): _tile(tile) for tile in stored}


def _tile(stored: EvidenceTile) -> Tile:
    try:
        seqs = () if stored.first_seqs is None else tuple(unpack_seqs(stored.first_seqs))
    except LeavesDiffer as fault:
        raise LeavesDiffer(f"tile {stored.level}/{stored.number}: {fault}") from fault
    pruned = stored.pruned or b""
    if pruned.count(0) + pruned[: len(seqs)].count(1) != len(pruned):
        raise LeavesDiffer(f"tile {stored.level}/{stored.number}: its pruned groups are damaged")
    return Tile(stored.hashes, seqs, pruned)


async def store_extension(session: AsyncSession, extension: Extension) -> bool:
    """Store a tree that has grown; False if it is not as it was before any more."""
    before, after = extension.before, extension.after
    tree = await session.get(EvidenceTree, after.tenant_id)
    if (0 if tree is None else tree.size) != before.size:
        return False
    if tree is None:
        tree = EvidenceTree(tenant_id=after.tenant_id, min_index=after.min_index)
        session.add(tree)
    tree.origin, tree.generation, tree.suspended = after.origin, after.generation, after.suspended
    tree.size, tree.last_seq, tree.tail = after.size, after.last_seq, after.tail
    for change in extension.tiles:
        place = (after.tenant_id, change.level, change.number)
        tile = await session.get(EvidenceTile, place)
        if tile is None:
            tile = EvidenceTile(tenant_id=after.tenant_id, level=change.level, number=change.number)
            session.add(tile)
        tile.hashes = change.hashes
        if change.first_seqs:
            tile.first_seq, tile.first_seqs = change.first_seqs[0], pack_seqs(change.first_seqs)
    await session.flush()
    return True


@dataclass(frozen=True, slots=True)
class LocatedGroup:
    """A group of the tree; `is_pruned` if all its rows are, else those that are one by one."""

    group: Group
    is_pruned: bool
    pruned: tuple[PrunedLeaf, ...]


async def find_group_of_seq(
    session: AsyncSession, tree: TreeState, seq: int
) -> LocatedGroup | None:
    """The group whose rows are around `seq`; None before the first and after the last row."""
    if seq > tree.last_seq:
        return None
    number = await session.scalar(
        select(EvidenceTile.number)
        .where(EvidenceTile.tenant_id == tree.tenant_id, EvidenceTile.first_seq <= seq)
        .order_by(EvidenceTile.first_seq.desc())
        .limit(1)
    )
    if number is None:
        return None
    groups = await list_groups(session, tree, number)
    return groups[bisect_right(groups, seq, key=lambda located: located.group.first_seq) - 1]


async def get_group(session: AsyncSession, tree: TreeState, number: int) -> LocatedGroup:
    """The group of this number, which has begun. Raises LeavesDiffer."""
    groups = await list_groups(session, tree, number // GROUP)
    if number % GROUP >= len(groups):
        raise LeavesDiffer(f"group {number} of the tree is missing")
    return groups[number % GROUP]


async def list_tiles(session: AsyncSession, tree: TreeState) -> list[tuple[int, int, int]]:
    """Each tile of level 1, and from which seq to before which its rows are."""
    tiles = select(EvidenceTile.number, EvidenceTile.first_seq).where(
        EvidenceTile.tenant_id == tree.tenant_id, EvidenceTile.level == 1
    )
    found = (await session.execute(tiles.order_by(EvidenceTile.number))).all()
    ends = [first for _, first in found[1:]] + [tree.last_seq + 1]
    return [
        (number, first or 0, end or 0) for (number, first), end in zip(found, ends, strict=True)
    ]


async def list_groups(
    session: AsyncSession, tree: TreeState, tile_number: int
) -> list[LocatedGroup]:
    """The groups of a tile of level 1, in order. Raises LeavesDiffer."""
    tile = await _get_tile(session, tree, tile_number)
    first = tile_number * GROUP
    end = tree.last_seq + 1
    if (first + GROUP) * GROUP < tree.size:
        end = (await _get_tile(session, tree, tile_number + 1)).first_seqs[0]
    stored = await session.execute(
        select(PrunedLeaves.group_number, PrunedLeaves.leaves).where(
            PrunedLeaves.tenant_id == tree.tenant_id,
            PrunedLeaves.group_number.between(first, first + GROUP - 1),
        )
    )
    pruned = {number: tuple(unpack_pruned(leaves)) for number, leaves in stored}
    ends = [*tile.first_seqs[1:], end]
    return [
        LocatedGroup(
            Group(number, seq, end, min(GROUP, tree.size - number * GROUP)),
            tile.pruned[number - first : number - first + 1] == b"\x01",
            pruned.get(number, ()),
        )
        for number, (seq, end) in enumerate(zip(tile.first_seqs, ends, strict=True), first)
    ]


async def _get_tile(session: AsyncSession, tree: TreeState, number: int) -> Tile:
    stored = await session.get(EvidenceTile, (tree.tenant_id, 1, number))
    if stored is None:
        raise LeavesDiffer(f"tile 1/{number} of the tree is missing")
    return _tile(stored)


async def load_day_keys(
    session: AsyncSession, tenant_id: str, days: Collection[date]
) -> dict[date, bytes]:
    """The keys of `days`, those that there are."""
    stored = await session.execute(
        select(EvidenceDayKey.day, EvidenceDayKey.key).where(
            EvidenceDayKey.tenant_id == tenant_id, EvidenceDayKey.day.in_(days)
        )
    )
    return {row.day: row.key for row in stored}


async def last_checkpoint(session: AsyncSession, tenant_id: str) -> EvidenceCheckpoint | None:
    """The organisation's newest checkpoint."""
    newest_first = EvidenceCheckpoint.generation.desc(), EvidenceCheckpoint.size.desc()
    of_tenant = select(EvidenceCheckpoint).where(EvidenceCheckpoint.tenant_id == tenant_id)
    return await session.scalar(of_tenant.order_by(*newest_first).limit(1))


async def list_checkpoints(
    session: AsyncSession, tree: TreeState, tile_number: int
) -> list[EvidenceCheckpoint]:
    """The checkpoints whose sizes end in a tile of level 1."""
    first = tile_number * GROUP**2
    stored = await session.scalars(
        select(EvidenceCheckpoint).where(
            EvidenceCheckpoint.tenant_id == tree.tenant_id,
            EvidenceCheckpoint.size > first,
            EvidenceCheckpoint.size <= first + GROUP**2,
        )
    )
    return [*stored]
