"""The audit lake: what a row is, where it lives, how it is found. Knows no HTTP, no SQLAlchemy."""
