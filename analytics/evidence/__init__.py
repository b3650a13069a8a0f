"""Proofs about rows: canonical bytes, a Merkle tree of their hashes, signed checkpoints.

The formats are those of C2SP and RFC 6962, so that others' programs verify them.
"""
