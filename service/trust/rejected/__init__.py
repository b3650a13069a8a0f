"""Rejected CI identities: recorded, listed, and proposed for trust."""
