"""Backups: all that a data dir holds, as of one instant, in a folder of its own."""
