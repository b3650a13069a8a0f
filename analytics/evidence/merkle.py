"""RFC 6962 Merkle trees: hashes, tiles of 256, proofs, and how proofs are verified.

A tree is stored as tiles (C2SP tlog-tiles): tile n of level L has the roots of up to 256 perfect
subtrees of 256^L leaves. Level 0, the leaves' own hashes, is not stored.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

HASH_BYTES: Final = 32
GROUP: Final = 256
"""The hashes of a full tile; at level 0 the leaves below one hash of level 1."""

TILE_BYTES: Final = GROUP * HASH_BYTES
_GROUP_BITS: Final = 8
_NODE: Final = b"\x01"
_LEAF: Final = b"\x00"

EMPTY_ROOT: Final = hashlib.sha256().digest()


class WrongProof(ValueError):
    """A proof that does not lead to the root it is said to be of."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(_LEAF + entry).digest()


def leaf_hashes(entries: Iterable[bytes]) -> list[bytes]:
    """The hash of each of these leaves."""
    sha256 = hashlib.sha256
    return [sha256(_LEAF + entry).digest() for entry in entries]


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()


def split(hashes: bytes) -> list[bytes]:
    """The hashes that stand one behind the other in `hashes`."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def root_of(hashes: Sequence[bytes]) -> bytes:
    """The root of a tree of these hashes of leaves, or of perfect subtrees of one size."""
    if not hashes:
        return EMPTY_ROOT
    nodes = list(hashes)
    sha256, node = hashlib.sha256, _NODE
    while len(nodes) > 1:
        last = [nodes.pop()] if len(nodes) % 2 else []
        pairs = iter(nodes)
        nodes = [
            sha256(node + left + right).digest() for left, right in zip(pairs, pairs, strict=True)
        ]
        # Unpaired it moves up: RFC 6962 splits at the largest power of two, from the left.
        nodes += last
    return nodes[0]


def _split_point(size: int) -> int:
    """The largest power of two below `size`, at least 2 (RFC 6962, 2.1)."""
    return 1 << (size - 1).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of `size` leaves; `tile` has the hashes of a tile, as many as there are.

    Tile (0, n) is asked for only where leaves of group n are needed one by one.
    """

    size: int
    tile: Callable[[int, int], bytes]

    def root(self, size: int | None = None) -> bytes:
        """The root of the first `size` leaves, by default of all."""
        return self._range(0, self.size if size is None else size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The proof that leaf `index` is among the first `size` (RFC 6962, 2.1.1)."""
        if not 0 <= index < size <= self.size:
            raise ValueError(f"no leaf {index} in a tree of {size}")
        proof: list[bytes] = []
        low, high = 0, size
        while high - low > 1:
            middle = low + _split_point(high - low)
            if index < middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low = middle
        return proof[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """The proof that the first `old` leaves begin the first `new` (RFC 6962, 2.1.2)."""
        if not 0 <= old <= new <= self.size:
            raise ValueError(f"no consistency between sizes {old} and {new}")
        if old in {0, new}:
            return []
        proof: list[bytes] = []
        low, high, is_whole = 0, new, True
        while old < high:
            middle = low + _split_point(high - low)
            if old <= middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low, is_whole = middle, False
        if not is_whole:
            proof.append(self._range(low, high))
        return proof[::-1]

    def _range(self, low: int, high: int) -> bytes:
        """The root of the leaves from `low` to before `high`.

        `low` is a multiple of a power of two that is not less than their number.
        """
        nodes = list(_perfect(low, high))
        if not nodes:
            return EMPTY_ROOT
        root = self._node(*nodes.pop())
        while nodes:
            root = node_hash(self._node(*nodes.pop()), root)
        return root

    def _node(self, height: int, index: int) -> bytes:
        """The root of the perfect subtree `index` of 2^height leaves."""
        level, number, first, count = _place(height, index)
        hashes = self.tile(level, number)
        wanted = hashes[first * HASH_BYTES : (first + count) * HASH_BYTES]
        if len(wanted) != HASH_BYTES * count:
            raise ValueError(f"tile {level}/{number} is too short")
        return root_of(split(wanted))


class _Outline(Tree):
    """A tree of which no hash is known, nor computed."""

    def _node(self, height: int, index: int) -> bytes:
        self.tile(*_place(height, index)[:2])
        return b""


def tiles_of(work: Callable[[Tree], object], size: int) -> set[tuple[int, int]]:
    """Level and number of the tiles that `work` takes hashes of in a tree of that size.

    Which these are depends on sizes and indexes alone.
    """
    taken: set[tuple[int, int]] = set()

    def take(level: int, number: int) -> bytes:
        taken.add((level, number))
        return b""

    work(_Outline(size, take))
    return taken


def _place(height: int, index: int) -> tuple[int, int, int, int]:
    """The hashes below a perfect subtree: level and number of their tile, the first, how many."""
    level, within = divmod(height, _GROUP_BITS)
    number, first = divmod(index << within, GROUP)
    return level, number, first, 1 << within


def _perfect(low: int, high: int) -> Iterator[tuple[int, int]]:
    """The perfect subtrees, as height and index, that leaves from `low` to `high` consist of."""
    while low < high:
        height = (high - low).bit_length() - 1
        yield height, low >> height
        low += 1 << height


def grow(edges: Sequence[bytes], leaves: bytes) -> list[bytes]:
    """The hashes of each level from 0 on, behind its last full tile, with those of `leaves`.

    `edges` are the same before, some of which fill further tiles now; fewer: empty ones.
    """
    levels: list[bytes] = []
    added = leaves
    while added or len(levels) < len(edges):
        hashes = (edges[len(levels)] if len(levels) < len(edges) else b"") + added
        levels.append(hashes)
        whole = range(0, len(hashes) - TILE_BYTES + 1, TILE_BYTES)
        added = b"".join(root_of(split(hashes[at : at + TILE_BYTES])) for at in whole)
    return levels


@dataclass(slots=True)
class CompactRange:
    """A tree that grows from the left, as the perfect subtrees that it consists of."""

    size: int = 0
    nodes: list[tuple[int, bytes]] = field(default_factory=list)
    """Their heights and roots, the highest first."""

    def add(self, root: bytes, height: int = 0) -> None:
        """Add a leaf, or a perfect subtree of that height; the size must be a multiple of its."""
        self.size += 1 << height
        while self.nodes and self.nodes[-1][0] == height:
            root = node_hash(self.nodes.pop()[1], root)
            height += 1
        self.nodes.append((height, root))

    @property
    def root(self) -> bytes:
        """Its root."""
        if not self.nodes:
            return EMPTY_ROOT
        *others, (_, root) = self.nodes
        for _, left in reversed(others):
            root = node_hash(left, root)
        return root


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> None:
    """Raise WrongProof unless `proof` leads from the leaf to `root` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise WrongProof(f"there is no leaf {index} in a tree of {size}")
    if _climb(index, size - 1, [leaf], proof) != [root]:
        raise WrongProof("the proof does not lead to the root")


def verify_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Raise WrongProof unless the tree of `old` leaves begins that of `new` (RFC 9162, 2.1.4.2)."""
    if not 0 <= old <= new:
        raise WrongProof(f"{old} leaves cannot begin {new}")
    if old in {0, new}:
        if proof or (old == new and old_root != new_root):
            raise WrongProof("the roots differ")
        return
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        raise WrongProof("the proof is too short")
    at, last = old - 1, new - 1
    while at % 2:
        at, last = at >> 1, last >> 1
    if _climb(at, last, [path[0], path[0]], path[1:]) != [old_root, new_root]:
        raise WrongProof("the proof does not lead to the roots")


def _climb(at: int, last: int, nodes: list[bytes], proof: Sequence[bytes]) -> list[bytes]:
    """The roots above `nodes`, at place `at` of a level whose last place is `last`.

    What stands to the right belongs to the newest tree alone, which is the last of `nodes`.
    """
    for sibling in proof:
        if last == 0:
            raise WrongProof("the proof is too long")
        if at % 2 or at == last:
            nodes = [node_hash(sibling, node) for node in nodes]
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            nodes = [*nodes[:-1], node_hash(nodes[-1], sibling)]
        at, last = at >> 1, last >> 1
    if last:
        raise WrongProof("the proof is too short")
    return nodes


def merge_into_ranges(ranges: list[tuple[int, int]], index: int) -> None:
    """Add `index` to `ranges`, first and last of each, all of which are before it."""
    first = index
    if ranges and ranges[-1][1] == index - 1:
        first, _ = ranges.pop()
    ranges.append((first, index))
