"""Rows as CSV, JSON, NDJSON and Parquet streams in constant memory.

An export that breaks off never looks like a complete file.
"""
