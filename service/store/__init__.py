"""The database: tables, transactions, journal, catalog, and their guarantees."""
