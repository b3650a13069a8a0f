"""The transactional store over SQLite: tables, transactions, and their guarantees."""
