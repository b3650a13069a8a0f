"""Streams: rows leave for other systems, at least once and in order."""
