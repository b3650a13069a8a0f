"""Rows and answers that were read before, held within a fixed number of bytes.

Everything cached is immutable, so no entry is ever invalidated.
"""
