"""Puts the service together and runs it."""
