"""The figures of a fleet: each beside that of one machine with SQLite and a folder, in one run."""
