"""Copying the database to another one."""
