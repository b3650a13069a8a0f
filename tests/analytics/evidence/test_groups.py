"""What is stored of groups besides hashes: one flipped bit of it is always noticed."""

import zlib

import pytest

from analytics.evidence.groups import (
    LeavesDiffer,
    PrunedLeaf,
    pack_pruned,
    pack_seqs,
    unpack_pruned,
    unpack_seqs,
)

SEQS = [3, 259, 515, 90_000, 2**40]
LEAVES = [PrunedLeaf(0, 3, bytes(32)), PrunedLeaf(255, 2**40, b"h" * 32)]


@pytest.mark.parametrize("count", [0, 1, 5, 256])
def test_seqs_are_read_as_they_were_stored(count):
    seqs = [*range(1, 100 * count, 100)]
    assert unpack_seqs(pack_seqs(seqs)) == seqs
    assert unpack_pruned(pack_pruned(LEAVES)) == LEAVES


@pytest.mark.parametrize(
    ("stored", "read"), [(pack_seqs(SEQS), unpack_seqs), (pack_pruned(LEAVES), unpack_pruned)]
)
def test_every_flipped_bit_is_an_error(stored, read):
    for place in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(LeavesDiffer, match="damaged"):
            read(bytes(flipped))
    without_checksum = len(stored) - 4 if read is unpack_seqs else None
    for length in {*range(len(stored))} - {without_checksum}:
        with pytest.raises(LeavesDiffer, match="damaged"):
            read(stored[:length])


def test_versions_before_and_after_read_the_seqs_of_each_other():
    """While nodes are upgraded in turn."""
    stored = pack_seqs(SEQS)
    before = stored[:-4]

    assert unpack_seqs(before) == SEQS
    assert zlib.decompress(stored) == zlib.decompress(before)
