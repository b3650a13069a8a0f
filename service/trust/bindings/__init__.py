"""Trust bindings: the CI identities that an organisation trusts."""
