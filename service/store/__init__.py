"""The transactional store: tables, transactions and what they promise, over SQLite."""
