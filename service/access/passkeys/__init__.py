"""Passkeys: registering, using and removing members' WebAuthn credentials."""
