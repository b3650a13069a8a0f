"""Trust bindings: which CI identities an organisation trusts."""
