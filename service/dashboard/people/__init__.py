"""The pages on which an organisation is run: its members, teams, projects, API keys and roles."""
