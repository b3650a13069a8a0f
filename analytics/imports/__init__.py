"""Imports files of historical rows: parses, checks and groups them into segments.

Memory stays bounded, and no segment is visible before the import commits.
"""
