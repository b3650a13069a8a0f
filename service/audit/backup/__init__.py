"""Backups: the complete contents of a data dir at one instant, in a separate folder."""
