"""The pages for people: dashboard, profile, signing in."""
