"""Saved searches of the audit log: an organisation's own, by name."""
