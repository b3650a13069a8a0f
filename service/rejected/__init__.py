"""CI identities that were turned away: remembered, listed, and proposed for trust."""
