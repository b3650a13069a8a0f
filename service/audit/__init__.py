"""The audit log: ingest, storage, queries, exports, import and retention."""
