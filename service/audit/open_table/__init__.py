"""The lake as an open table: what is published where, and what a publication still needs."""
