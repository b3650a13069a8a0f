"""The stored trees: their right edge, which grows, and the tiles that proofs are made of."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.groups import (
    Group,
    Leaf,
    LeavesDiffer,
    Rows,
    pack_seqs,
    unpack_pruned,
    unpack_seqs,
)
from analytics.evidence.merkle import GROUP, HASH_BYTES, TILE_BYTES, Tree, grow
from service.store.store import UnitOfWork
from service.store.tables import (
    EvidenceCheckpoint,
    EvidenceDayKey,
    EvidenceTile,
    EvidenceTree,
    Fact,
    PrunedLeaves,
)
from service.store.transaction import Transaction

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
class Tile:
    """A tile as it is stored: see EvidenceTile."""

    hashes: bytes = b""
    first_seqs: tuple[int, ...] = ()
    rows: bytes = b""


Tiles = dict[tuple[int, int], Tile]
"""By level and number."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A tree before and after it has grown, and the tiles of its right edge then."""

    before: TreeState
    after: TreeState
    tiles: Tiles
    root: bytes


def extend(state: TreeState, leaves: Sequence[Leaf]) -> Extension:
    """The tree with further leaves, whose seqs all are after its last one."""
    seqs = [seq for seq, _ in leaves]
    if not seqs or seqs[0] <= state.last_seq:
        raise ValueError("a tree grows by rows that were accepted after its last one")
    size = state.size + len(seqs)
    begun = range(-(-state.size // GROUP) * GROUP, size, GROUP)
    first_seqs = [*state.first_seqs, *(seqs[index - state.size] for index in begun)]
    # The first leaves may be fewer than a group, whose first seq is stored all the same.
    tiles: Tiles = {(1, _number(state.size, 1)): Tile(first_seqs=(*first_seqs[:GROUP],))}
    levels = grow([state.tail, *state.edges], b"".join(leaf for _, leaf in leaves))
    for level, hashes in enumerate(levels[1:], 1):
        first = _number(state.size, level)
        tiles |= _tiles(level, first, hashes, first_seqs if level == 1 else ())
    edges = [hashes[len(hashes) // TILE_BYTES * TILE_BYTES :] for hashes in levels]
    after = replace(
        state,
        size=size,
        last_seq=seqs[-1],
        tail=edges[0],
        edges=tuple(edges[1:]),
        first_seqs=tuple(first_seqs[(_number(size, 1) - _number(state.size, 1)) * GROUP :]),
    )
    return Extension(state, after, tiles, Tree(size, lambda level, _: edges[level]).root())


def _number(size: int, level: int) -> int:
    """The unfinished tile of a level of a tree; it may be empty."""
    return size >> _BITS * (level + 1)


def _tiles(level: int, first: int, hashes: bytes, first_seqs: Sequence[int]) -> Tiles:
    """The tiles from number `first` on that these hashes and first seqs fill."""
    count = max(len(hashes) // HASH_BYTES, len(first_seqs))
    return {
        (level, first + at // GROUP): Tile(
            hashes[at * HASH_BYTES : (at + GROUP) * HASH_BYTES], (*first_seqs[at : at + GROUP],)
        )
        for at in range(0, count, GROUP)
    }


class StoredCheckpoint(NamedTuple):
    """See EvidenceCheckpoint."""

    generation: int
    size: int
    root: bytes
    last_seq: int
    signed_at: datetime
    key_id: str
    signatures: str


# Constants, as `Transaction` wants them: a proof reads ten times, and is asked for by people.
_TREE_NAMES: Final = ("origin", "generation", "size", "last_seq", "tail", "min_index", "suspended")
_TREE: Final = select(*(getattr(EvidenceTree, name) for name in _TREE_NAMES)).where(
    EvidenceTree.tenant_id == bindparam("tenant_id")
)
_TREES: Final = cast("Table", EvidenceTree.__table__)
_GROW_TREE: Final = (
    update(_TREES)
    .where(EvidenceTree.tenant_id == bindparam("tenant_id"))
    .values({name: bindparam(f"new_{name}") for name in ("size", "last_seq", "tail")})
)
_ADD_TREE: Final = insert(_TREES)
_OF_TILES: Final = EvidenceTile.tenant_id == bindparam("tenant_id")
_OF_TILE: Final = (
    _OF_TILES,
    EvidenceTile.level == bindparam("level"),
    EvidenceTile.number == bindparam("number"),
)
_TILE: Final = select(EvidenceTile.hashes, EvidenceTile.first_seqs, EvidenceTile.pruned).where(
    *_OF_TILE
)
_TILES: Final = cast("Table", EvidenceTile.__table__)
_CHANGE_TILE: Final = (
    update(_TILES)
    .where(*_OF_TILE)
    .values({name: bindparam(f"new_{name}") for name in ("hashes", "first_seq", "first_seqs")})
    .returning(EvidenceTile.number)
)
_ADD_TILE: Final = insert(_TILES)
_TILE_OF_SEQ: Final = (
    select(EvidenceTile.number)
    .where(_OF_TILES, EvidenceTile.first_seq <= bindparam("seq"))
    .order_by(EvidenceTile.first_seq.desc())
    .limit(1)
)
_FIRST_SEQS: Final = (
    select(EvidenceTile.number, EvidenceTile.first_seq, EvidenceTile.pruned)
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
    *(getattr(EvidenceCheckpoint, name) for name in StoredCheckpoint._fields)
).where(EvidenceCheckpoint.tenant_id == bindparam("tenant_id"))
ADD_CHECKPOINT: Final = insert(cast("Table", EvidenceCheckpoint.__table__))
ADD_DAY_KEY: Final = insert(cast("Table", EvidenceDayKey.__table__))
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


def read_tree(transaction: Transaction, tenant_id: str) -> TreeState | None:
    """The organisation's tree with its right edge; None before its first row."""
    for line in transaction.rows(_TREE, {"tenant_id": tenant_id}):
        size = line[2]
        levels = [level for level in _LEVELS if level == 1 or size >> _BITS * level]
        places = [(level, _number(size, level)) for level in levels]
        edges = [read_tile(transaction, tenant_id, *place) or Tile() for place in places]
        hashes = tuple(edge.hashes for edge in edges)
        known = dict(zip(_TREE_NAMES, line, strict=True))
        return TreeState(tenant_id, **known, edges=hashes, first_seqs=edges[0].first_seqs)
    return None


def read_tile(transaction: Transaction, tenant_id: str, level: int, number: int) -> Tile | None:
    """A tile of level 1 or higher. Raises LeavesDiffer."""
    place = {"tenant_id": tenant_id, "level": level, "number": number}
    for hashes, first_seqs, rows in transaction.rows(_TILE, place):
        try:
            seqs = () if first_seqs is None else tuple(unpack_seqs(first_seqs))
        except LeavesDiffer as fault:
            raise LeavesDiffer(f"tile {level}/{number}: {fault}") from fault
        of_groups = rows or b""
        if of_groups[len(seqs) :].strip(b"\0") or not set(of_groups) <= {*Rows}:
            raise LeavesDiffer(f"tile {level}/{number}: its pruned groups are damaged")
        return Tile(hashes, seqs, of_groups)
    return None


def _get_tile(transaction: Transaction, tree: TreeState, number: int) -> Tile:
    tile = read_tile(transaction, tree.tenant_id, 1, number)
    if tile is None:
        raise LeavesDiffer(f"tile 1/{number} of the tree is missing")
    return tile


def store_extension(transaction: Transaction, extension: Extension) -> bool:
    """Store a tree that has grown; False if it is not as it was before any more."""
    before, after = extension.before, extension.after
    own = {"tenant_id": after.tenant_id}
    found = [dict(zip(_TREE_NAMES, line, strict=True)) for line in transaction.rows(_TREE, own)]
    for tree in found:
        is_as_before = (tree["size"], tree["generation"]) == (before.size, before.generation)
        if not is_as_before or tree["suspended"] is not None:
            return False
    if not found and before.size:
        return False
    grown = {"new_size": after.size, "new_last_seq": after.last_seq, "new_tail": after.tail}
    if found:
        transaction.run(_GROW_TREE, [own | grown])
    else:
        new = {name: getattr(after, name) for name in _TREE_NAMES}
        transaction.run(_ADD_TREE, [own | new | {"monitored_at": None}])
    for (level, number), tile in extension.tiles.items():
        _store_tile(transaction, own | {"level": level, "number": number}, tile)
    return True


def _store_tile(transaction: Transaction, place: dict[str, Any], tile: Tile) -> None:
    """A tile as it is now; what is pruned of it stays so."""
    content: dict[str, Any] = {
        "hashes": tile.hashes,
        "first_seq": tile.first_seqs[0] if tile.first_seqs else None,
        "first_seqs": pack_seqs(tile.first_seqs) if tile.first_seqs else None,
    }
    changed = {f"new_{name}": value for name, value in content.items()}
    if not transaction.rows(_CHANGE_TILE, place | changed):
        transaction.run(_ADD_TILE, [place | content | {"pruned": None}])


def read_group_of_seq(transaction: Transaction, tree: TreeState, seq: int) -> Group | None:
    """The group whose rows are around `seq`; None before the first and after the last row."""
    if seq > tree.last_seq:
        return None
    for (number,) in transaction.rows(_TILE_OF_SEQ, {"tenant_id": tree.tenant_id, "seq": seq}):
        at = bisect_right(_get_tile(transaction, tree, number).first_seqs, seq) - 1
        return read_group(transaction, tree, number * GROUP + at)
    return None


def read_group(transaction: Transaction, tree: TreeState, number: int) -> Group:
    """The group of this number, which has begun. Raises LeavesDiffer."""
    for group in read_groups(transaction, tree, number, number + 1):
        return group
    raise LeavesDiffer(f"group {number} of the tree is missing")


def read_groups(transaction: Transaction, tree: TreeState, first: int, end: int) -> list[Group]:
    """The groups from number `first` to before `end`, which are of one tile.

    Raises LeavesDiffer.
    """
    number, start = divmod(first, GROUP)
    tile = _get_tile(transaction, tree, number)
    # Only those of `tree`, which may have grown since it was read.
    known = tile.first_seqs[: -(-tree.size // GROUP) - number * GROUP]
    seqs = [*known, tree.last_seq + 1]
    if (number + 1) * GROUP**2 < tree.size:
        seqs[-1] = _get_tile(transaction, tree, number + 1).first_seqs[0]
    bounds = {"tenant_id": tree.tenant_id, "first": first, "end": end}
    pruned = {line[0]: unpack_pruned(line[1]) for line in transaction.rows(_PRUNED, bounds)}
    rows = tile.rows.ljust(GROUP, b"\0")
    return [
        Group(
            number=group,
            first_seq=seqs[at],
            end_seq=seqs[at + 1],
            size=min(GROUP, tree.size - group * GROUP),
            rows=Rows(rows[at]),
            pruned=(*pruned.get(group, ()),),
        )
        for at, group in enumerate(range(first, end), start)
        if at < len(known)
    ]


def read_bounds(transaction: Transaction, tree: TreeState) -> list[tuple[int, int, int, bool]]:
    """Each tile of level 1: from which seq to before which its rows are, and if some are lost."""
    found = transaction.rows(_FIRST_SEQS, {"tenant_id": tree.tenant_id})
    ends = [first for _, first, _ in found[1:]] + [tree.last_seq + 1]
    return [
        (number, first or 0, end or 0, Rows.LOST in (rows or b""))
        for (number, first, rows), end in zip(found, ends, strict=True)
    ]


async def set_rows(session: AsyncSession, tenant_id: str, groups: Mapping[int, Rows]) -> None:
    """Note what is stored of the rows of these groups, and advance `min_index`."""
    for number in sorted({group // GROUP for group in groups}):
        tile = await session.get_one(EvidenceTile, (tenant_id, 1, number))
        rows = bytearray((tile.pruned or b"").ljust(GROUP, b"\0"))
        for group in range(number * GROUP, (number + 1) * GROUP):
            rows[group % GROUP] = groups.get(group, rows[group % GROUP])
        tile.pruned = bytes(rows)
    await session.flush()
    tree = await session.get_one(EvidenceTree, tenant_id)
    first = tree.min_index // GROUP
    while found := await session.get(EvidenceTile, (tenant_id, 1, first // GROUP)):
        of_groups = (found.pruned or b"").ljust(GROUP, b"\0")
        behind = of_groups[first % GROUP :].lstrip(bytes([Rows.PRUNED]))
        first += GROUP - first % GROUP - len(behind)
        if behind:
            break
    tree.min_index = first * GROUP


def read_day_keys(
    transaction: Transaction, tenant_id: str, days: Collection[date]
) -> dict[date, bytes]:
    """The keys of `days`, those that there are."""
    return {
        day: key
        for day in days
        for (key,) in transaction.rows(_DAY_KEY, {"tenant_id": tenant_id, "day": day})
    }


def read_checkpoint(
    transaction: Transaction, tree: TreeState, size: int | None = None
) -> StoredCheckpoint | None:
    """The log's checkpoint of this size, or its newest one."""
    if size is None:
        return read_last_checkpoint(transaction, tree.tenant_id)
    place = {"tenant_id": tree.tenant_id, "generation": tree.generation, "size": size}
    lines = transaction.rows(_CHECKPOINT, place)
    return next((StoredCheckpoint(*line) for line in lines), None)


def read_last_checkpoint(transaction: Transaction, tenant_id: str) -> StoredCheckpoint | None:
    """The organisation's newest checkpoint."""
    lines = transaction.rows(_LAST_CHECKPOINT, {"tenant_id": tenant_id})
    return next((StoredCheckpoint(*line) for line in lines), None)


def read_checkpoints(
    transaction: Transaction, tree: TreeState, tile_number: int
) -> list[StoredCheckpoint]:
    """The checkpoints whose sizes end in a tile of level 1."""
    first = tile_number * GROUP**2
    end = min(first + GROUP**2, tree.size)
    bounds = {"tenant_id": tree.tenant_id, "first": first, "end": end}
    return [StoredCheckpoint(*line) for line in transaction.rows(_CHECKPOINTS_BETWEEN, bounds)]
