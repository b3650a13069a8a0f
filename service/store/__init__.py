"""The transactional store: SQLAlchemy over SQLite today, PostgreSQL by changing a URL."""
