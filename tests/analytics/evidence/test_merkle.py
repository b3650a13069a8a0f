"""Trees and proofs, compared with the recursive definitions of RFC 6962."""

import hashlib
import random
from itertools import pairwise

import pytest

from analytics.evidence.merkle import (
    EMPTY_ROOT,
    TILE_BYTES,
    Tree,
    WrongProof,
    grow,
    leaf_hash,
    node_hash,
    tiles_of,
    verify_consistency,
    verify_inclusion,
)

LEAVES = [leaf_hash(str(number).encode()) for number in range(70_000)]
SIZES = [0, 1, 2, 3, 255, 256, 257, 511, 513, 65_535, 65_536, 65_537, 70_000]


def merkle_root(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1."""
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY_ROOT
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(merkle_root(leaves[:middle]), merkle_root(leaves[middle:]))


def grown(steps: list[int]) -> list[bytes]:
    """The hashes of each level of a tree that grew by so many leaves at a time."""
    levels: list[bytes] = []
    for start, end in pairwise([0, *steps]):
        edges = [all_[len(all_) // TILE_BYTES * TILE_BYTES :] for all_ in levels]
        added = grow(edges, b"".join(LEAVES[start:end]))
        levels += [b""] * (len(added) - len(levels))
        full = [len(all_) // TILE_BYTES * TILE_BYTES for all_ in levels]
        levels = [all_[:until] + new for all_, until, new in zip(levels, full, added, strict=True)]
    return levels


@pytest.fixture(scope="module")
def tree() -> Tree:
    rng = random.Random(7)
    steps = sorted({rng.randrange(len(LEAVES)) for _ in range(200)} | {len(LEAVES)})
    levels = grown(steps)

    def tile(level: int, number: int) -> bytes:
        return levels[level][number * TILE_BYTES : (number + 1) * TILE_BYTES]

    return Tree(len(LEAVES), tile)


@pytest.mark.parametrize("size", SIZES)
def test_a_root_is_that_of_the_definition(tree: Tree, size: int) -> None:
    assert tree.root(size) == merkle_root(LEAVES[:size])


def test_every_inclusion_proof_of_small_trees_verifies(tree: Tree) -> None:
    for size in range(1, 40):
        for index in range(size):
            proof = tree.inclusion(index, size)
            verify_inclusion(LEAVES[index], index, size, proof, tree.root(size))


def test_every_consistency_proof_of_small_trees_verifies(tree: Tree) -> None:
    for new in range(40):
        for old in range(new + 1):
            proof = tree.consistency(old, new)
            verify_consistency(old, new, tree.root(old), tree.root(new), proof)


def test_a_proof_of_another_leaf_size_or_root_is_refused(tree: Tree) -> None:
    rng = random.Random(11)
    for _ in range(50):
        size = rng.randrange(2, len(LEAVES))
        index = rng.randrange(size)
        proof, root = tree.inclusion(index, size), tree.root(size)
        verify_inclusion(LEAVES[index], index, size, proof, root)
        broken = list(proof)
        at = rng.randrange(len(broken))
        broken[at] = hashlib.sha256(broken[at]).digest()
        for wrong in (
            (LEAVES[index + 1], index, size, proof, root),
            (LEAVES[index], index, size, broken, root),
            (LEAVES[index], index, size, proof[:-1], root),
            (LEAVES[index], index, size, [*proof, root], root),
            (LEAVES[index], size, size, proof, root),
            (LEAVES[index], index, size, proof, tree.root(size - 1)),
        ):
            with pytest.raises(WrongProof):
                verify_inclusion(*wrong)


def test_a_consistency_proof_of_other_roots_is_refused(tree: Tree) -> None:
    rng = random.Random(13)
    for _ in range(50):
        new = rng.randrange(3, len(LEAVES))
        old = rng.randrange(1, new)
        proof = tree.consistency(old, new)
        old_root, new_root = tree.root(old), tree.root(new)
        verify_consistency(old, new, old_root, new_root, proof)
        for wrong in (
            (old, new, new_root, new_root, proof),
            (old, new, old_root, old_root, proof),
            (old, new, old_root, new_root, proof[:-1]),
            (old, new, old_root, new_root, [*proof, new_root]),
            (new + 1, new, old_root, new_root, proof),
        ):
            with pytest.raises(WrongProof):
                verify_consistency(*wrong)


def test_the_tiles_of_a_proof_are_those_that_it_reads(tree: Tree) -> None:
    """They are read at once, before any hash is known: with one too few there is no proof."""
    rng = random.Random(3)
    for _ in range(40):
        size = rng.randrange(2, tree.size + 1)
        index, old = rng.randrange(size), rng.randrange(1, size)
        read: set[tuple[int, int]] = set()

        def tile(level: int, number: int, read: set[tuple[int, int]] = read) -> bytes:
            read.add((level, number))
            return tree.tile(level, number)

        work = [lambda of: of.inclusion(index, size), lambda of: of.consistency(old, size)]  # noqa: B023
        for make in work:
            read.clear()
            make(Tree(tree.size, tile))
            assert tiles_of(make, tree.size) == read


def test_no_proof_is_given_of_what_is_not_in_the_tree(tree: Tree) -> None:
    with pytest.raises(ValueError, match="no leaf 5 in a tree of 5"):
        tree.inclusion(5, 5)
    with pytest.raises(ValueError, match="no consistency"):
        tree.consistency(6, 5)
