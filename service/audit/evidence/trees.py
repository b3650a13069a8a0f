"""The stored trees: their right edge, which grows, and the tiles that proofs are made of."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Final

from sqlalchemy import bindparam, select
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
from service.store.store import UnitOfWork
from service.store.tables import (
    EvidenceCheckpoint,
    EvidenceDayKey,
    EvidenceTile,
    EvidenceTree,
    Fact,
    PrunedLeaves,
)
from service.store.transaction import Transaction, within

_BITS: Final = 8
_GENERATION: Final = "evidence_generation"
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


async def begin_generation(work: UnitOfWork) -> int:
    """The number of generations that begin now: by the clock, as no restored state can count."""
    number = int(work.now.timestamp()) // 60
    await work.session.merge(Fact(name=_GENERATION, value=str(number)))
    return number


async def first_generation(session: AsyncSession) -> int:
    """That of a tree that begins: what was restored may lack one that had begun."""
    fact = await session.get(Fact, _GENERATION)
    return 1 if fact is None else int(fact.value)


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


@dataclass(frozen=True, slots=True)
class Tile:
    """A stored tile."""

    hashes: bytes
    first_seqs: tuple[int, ...] = ()
    pruned: bytes = b""


_NO_TILE: Final = Tile(b"")
Tiles = dict[tuple[int, int], Tile]


# Constants, as `Transaction` wants them: a proof reads ten times, and is asked for by people.
_TREE: Final = select(
    EvidenceTree.origin,
    EvidenceTree.generation,
    EvidenceTree.size,
    EvidenceTree.last_seq,
    EvidenceTree.tail,
    EvidenceTree.min_index,
    EvidenceTree.suspended,
).where(EvidenceTree.tenant_id == bindparam("tenant_id"))
_OF_TILES: Final = EvidenceTile.tenant_id == bindparam("tenant_id")
_TILE: Final = select(EvidenceTile.hashes, EvidenceTile.first_seqs, EvidenceTile.pruned).where(
    _OF_TILES,
    EvidenceTile.level == bindparam("level"),
    EvidenceTile.number == bindparam("number"),
)
_TILE_OF_SEQ: Final = (
    select(EvidenceTile.number)
    .where(_OF_TILES, EvidenceTile.first_seq <= bindparam("seq"))
    .order_by(EvidenceTile.first_seq.desc())
    .limit(1)
)
_FIRST_SEQS: Final = (
    select(EvidenceTile.number, EvidenceTile.first_seq)
    .where(_OF_TILES, EvidenceTile.level == 1)
    .order_by(EvidenceTile.number)
)
_PRUNED: Final = select(PrunedLeaves.group_number, PrunedLeaves.leaves).where(
    PrunedLeaves.tenant_id == bindparam("tenant_id"),
    PrunedLeaves.group_number >= bindparam("first"),
    PrunedLeaves.group_number < bindparam("end"),
)
_DAY_KEY: Final = select(EvidenceDayKey.key).where(
    EvidenceDayKey.tenant_id == bindparam("tenant_id"), EvidenceDayKey.day == bindparam("day")
)
_CHECKPOINTS: Final = select(
    EvidenceCheckpoint.generation,
    EvidenceCheckpoint.size,
    EvidenceCheckpoint.root,
    EvidenceCheckpoint.last_seq,
    EvidenceCheckpoint.signed_at,
    EvidenceCheckpoint.key_id,
    EvidenceCheckpoint.signatures,
).where(EvidenceCheckpoint.tenant_id == bindparam("tenant_id"))
_LAST_CHECKPOINT: Final = _CHECKPOINTS.order_by(
    EvidenceCheckpoint.generation.desc(), EvidenceCheckpoint.size.desc()
).limit(1)
_CHECKPOINT: Final = _CHECKPOINTS.where(
    EvidenceCheckpoint.generation == bindparam("generation"),
    EvidenceCheckpoint.size == bindparam("size"),
)
_CHECKPOINTS_BETWEEN: Final = _CHECKPOINTS.where(
    EvidenceCheckpoint.size > bindparam("first"), EvidenceCheckpoint.size <= bindparam("end")
)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """See EvidenceCheckpoint."""

    generation: int
    size: int
    root: bytes
    last_seq: int
    signed_at: datetime
    key_id: str
    signatures: str


def read_tree(transaction: Transaction, tenant_id: str) -> TreeState | None:
    """The organisation's tree with its right edge; None before its first row."""
    for line in transaction.rows(_TREE, {"tenant_id": tenant_id}):
        origin, generation, size, last_seq, tail, min_index, suspended = line
        tiles = read_tiles(transaction, tenant_id, size, [size])
        edges = [
            tiles.get((level, _number(size, level)), _NO_TILE)
            for level in _LEVELS
            if size >> _BITS * level
        ]
        first = edges[0] if edges else tiles.get((1, 0), _NO_TILE)
        return TreeState(
            tenant_id,
            origin,
            generation,
            size,
            last_seq,
            tail,
            min_index,
            suspended,
            tuple(edge.hashes for edge in edges),
            first.first_seqs,
        )
    return None


async def find_tree(session: AsyncSession, tenant_id: str) -> TreeState | None:
    """See `read_tree`."""
    return await within(session, read_tree, tenant_id)


def read_tiles(
    transaction: Transaction, tenant_id: str, size: int, positions: Collection[int]
) -> Tiles:
    """The tiles above these leaves in a tree of that size, those that exist, level 0 excepted."""
    places = {
        (level, _number(position, level))
        for level in _LEVELS
        if level == 1 or size >> _BITS * level
        for position in positions
    }
    found = {place: _read_tile(transaction, tenant_id, *place) for place in places}
    return {place: tile for place, tile in found.items() if tile is not None}


def _read_tile(transaction: Transaction, tenant_id: str, level: int, number: int) -> Tile | None:
    place = {"tenant_id": tenant_id, "level": level, "number": number}
    for hashes, first_seqs, pruned in transaction.rows(_TILE, place):
        try:
            seqs = () if first_seqs is None else tuple(unpack_seqs(first_seqs))
        except LeavesDiffer as fault:
            raise LeavesDiffer(f"tile {level}/{number}: {fault}") from fault
        flags = pruned or b""
        if flags.count(0) + flags[: len(seqs)].count(1) != len(flags):
            raise LeavesDiffer(f"tile {level}/{number}: its pruned groups are damaged")
        return Tile(hashes, seqs, flags)
    return None


def _get_tile(transaction: Transaction, tree: TreeState, number: int) -> Tile:
    tile = _read_tile(transaction, tree.tenant_id, 1, number)
    if tile is None:
        raise LeavesDiffer(f"tile 1/{number} of the tree is missing")
    return tile


async def store_extension(session: AsyncSession, extension: Extension) -> bool:
    """Store a tree that has grown; False if it is not as it was before any more."""
    before, after = extension.before, extension.after
    tree = await session.get(EvidenceTree, after.tenant_id)
    if tree is None:
        tree = EvidenceTree(
            tenant_id=after.tenant_id, origin=after.origin, generation=after.generation, size=0
        )
        tree.min_index = after.min_index
        session.add(tree)
    is_as_before = (tree.size, tree.generation) == (before.size, before.generation)
    if not is_as_before or tree.suspended is not None:
        return False
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


def read_group_of_seq(transaction: Transaction, tree: TreeState, seq: int) -> LocatedGroup | None:
    """The group whose rows are around `seq`; None before the first and after the last row."""
    if seq > tree.last_seq:
        return None
    for (number,) in transaction.rows(_TILE_OF_SEQ, {"tenant_id": tree.tenant_id, "seq": seq}):
        at = bisect_right(_get_tile(transaction, tree, number).first_seqs, seq) - 1
        return read_group(transaction, tree, number * GROUP + at)
    return None


def read_group(transaction: Transaction, tree: TreeState, number: int) -> LocatedGroup:
    """The group of this number, which has begun. Raises LeavesDiffer."""
    for located in _groups(transaction, tree, number, number + 1):
        return located
    raise LeavesDiffer(f"group {number} of the tree is missing")


async def list_groups(
    session: AsyncSession, tree: TreeState, tile_number: int
) -> list[LocatedGroup]:
    """The groups of a tile of level 1, in order. Raises LeavesDiffer."""
    first = tile_number * GROUP
    return await within(session, _groups, tree, first, first + GROUP)


def _groups(transaction: Transaction, tree: TreeState, first: int, end: int) -> list[LocatedGroup]:
    """The groups from number `first` to before `end`, which are of one tile."""
    number, start = divmod(first, GROUP)
    tile = _get_tile(transaction, tree, number)
    # Only those of `tree`, which may have grown since it was read.
    known = tile.first_seqs[: -(-tree.size // GROUP) - number * GROUP]
    seqs = [*known, tree.last_seq + 1]
    if (number + 1) * GROUP**2 < tree.size:
        seqs[-1] = _get_tile(transaction, tree, number + 1).first_seqs[0]
    bounds = {"tenant_id": tree.tenant_id, "first": first, "end": end}
    pruned = {line[0]: line[1] for line in transaction.rows(_PRUNED, bounds)}
    return [
        LocatedGroup(
            Group(group, seqs[at], seqs[at + 1], min(GROUP, tree.size - group * GROUP)),
            tile.pruned[at : at + 1] == b"\x01",
            tuple(unpack_pruned(pruned[group])) if group in pruned else (),
        )
        for at, group in enumerate(range(first, end), start)
        if at < len(known)
    ]


async def list_tiles(session: AsyncSession, tree: TreeState) -> list[tuple[int, int, int]]:
    """Each tile of level 1, and from which seq to before which its rows are."""

    def read(transaction: Transaction) -> list[tuple[int, int, int]]:
        found = transaction.rows(_FIRST_SEQS, {"tenant_id": tree.tenant_id})
        ends = [first for _, first in found[1:]] + [tree.last_seq + 1]
        return [
            (number, first or 0, end or 0) for (number, first), end in zip(found, ends, strict=True)
        ]

    return await within(session, read)


def read_day_keys(
    transaction: Transaction, tenant_id: str, days: Collection[date]
) -> dict[date, bytes]:
    """The keys of `days`, those that there are."""
    return {
        day: key
        for day in days
        for (key,) in transaction.rows(_DAY_KEY, {"tenant_id": tenant_id, "day": day})
    }


async def load_day_keys(
    session: AsyncSession, tenant_id: str, days: Collection[date]
) -> dict[date, bytes]:
    """See `read_day_keys`."""
    return await within(session, read_day_keys, tenant_id, days)


def read_checkpoint(
    transaction: Transaction, tree: TreeState, size: int | None = None
) -> StoredCheckpoint | None:
    """The log's checkpoint of this size, or its newest one."""
    if size is None:
        lines = transaction.rows(_LAST_CHECKPOINT, {"tenant_id": tree.tenant_id})
    else:
        place = {"tenant_id": tree.tenant_id, "generation": tree.generation, "size": size}
        lines = transaction.rows(_CHECKPOINT, place)
    return next((StoredCheckpoint(*line) for line in lines), None)


async def last_checkpoint(session: AsyncSession, tenant_id: str) -> StoredCheckpoint | None:
    """The organisation's newest checkpoint."""

    def read(transaction: Transaction) -> StoredCheckpoint | None:
        lines = transaction.rows(_LAST_CHECKPOINT, {"tenant_id": tenant_id})
        return next((StoredCheckpoint(*line) for line in lines), None)

    return await within(session, read)


async def list_checkpoints(
    session: AsyncSession, tree: TreeState, tile_number: int
) -> list[StoredCheckpoint]:
    """The checkpoints whose sizes end in a tile of level 1."""

    def read(transaction: Transaction) -> list[StoredCheckpoint]:
        first = tile_number * GROUP**2
        bounds = {
            "tenant_id": tree.tenant_id,
            "first": first,
            "end": min(first + GROUP**2, tree.size),
        }
        return [StoredCheckpoint(*line) for line in transaction.rows(_CHECKPOINTS_BETWEEN, bounds)]

    return await within(session, read)
