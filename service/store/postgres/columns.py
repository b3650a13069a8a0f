"""Column settings that PostgreSQL must be given; other databases have them anyway."""

from typing import Final

from sqlalchemy import Connection, MetaData, text

COLLATION: Final = "C"

# `pg_attribute` rather than information_schema, which lacks the storage.
_OTHERWISE: Final = text("""
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
      AND a.attnum > 0 AND NOT a.attisdropped AND l.collname <> 'C'
""")
_COMPRESSING: Final = text("""
    SELECT c.relname, a.attname
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
      AND a.attnum > 0 AND NOT a.attisdropped
      AND a.atttypid = 'bytea'::regtype AND a.attstorage <> 'e'
""")


def set_up_columns(connection: Connection, tables: MetaData) -> None:
    """Order text by code point, as Python and SQLite do, and store bytes as they are.

    Otherwise the order of pages would depend on the locale of the database and change with its
    system's libraries, and journal batches, which are compressed, would be compressed again.
    Called after migrations: only columns that are new need it.
    """
    for table, column, kind in connection.execute(_OTHERWISE).all():
        if _is_ours(tables, table, column):
            _alter(connection, table, column, f'TYPE {kind} COLLATE "{COLLATION}"')
    for table, column in connection.execute(_COMPRESSING).all():
        if _is_ours(tables, table, column):
            _alter(connection, table, column, "SET STORAGE EXTERNAL")


def _is_ours(tables: MetaData, table: str, column: str) -> bool:
    known = tables.tables.get(table)
    return known is not None and column in known.c


def _alter(connection: Connection, table: str, column: str, change: str) -> None:
    quote = connection.dialect.identifier_preparer.quote
    connection.exec_driver_sql(f"ALTER TABLE {quote(table)} ALTER {quote(column)} {change}")
