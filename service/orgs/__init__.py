"""Organisations and what belongs to them: projects, teams, members, API keys, holds."""
