"""Organisations with their projects, teams, members, API keys, sessions and legal holds."""
