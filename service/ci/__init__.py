"""Issuers of CI tokens, their keys, and the verifier of tokens."""
