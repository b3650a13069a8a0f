"""Pages to manage an organisation: its members, teams, projects, API keys and roles."""
