"""Members, teams, projects, API keys, holds."""
