"""Where rows are kept: journal batches and immutable Parquet segments, durable and verifiable.

Every path, sync, merge and integrity check of the audit folder is in this package.
"""
