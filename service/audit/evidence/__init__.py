"""Evidence: a Merkle tree of each organisation's rows, signed checkpoints, and proofs from them."""
