"""CI identity providers: the accepted issuers, and the keys that verify their tokens."""
