"""PostgreSQL: everything that is its own, and of no other database."""
