"""Ingest, queries, exports, maintenance of the log."""
