"""Moves a service from SQLite to PostgreSQL: every row of every table, compared on both sides."""
