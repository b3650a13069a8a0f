"""Asks DuckDB: FORMAT FOLDER, answers in JSON."""

import importlib
import json
import sys
from pathlib import Path

import duckdb

format_, folder = sys.argv[1:]
connection = duckdb.connect(config={"autoinstall_known_extensions": False})
for name in ("httpfs", "avro", "iceberg", "delta"):
    package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    connection.load_extension(str(next(package.rglob("*.duckdb_extension"))))
connection.execute("SET TimeZone = 'UTC'")
scan = "iceberg_scan" if format_ == "iceberg" else "delta_scan"
connection.execute(f"CREATE VIEW audit AS SELECT * FROM {scan}('{folder}')")


def rows(query: str) -> list[tuple]:
    return connection.execute(query).fetchall()


((count, first, last),) = rows("SELECT count(*), min(seq), max(seq) FROM audit")
weekly = rows(
    "SELECT strftime(date_trunc('week', created_at), '%Y-%m-%d'), count(*) FROM audit"
    " WHERE event = 'blocklist_hit' GROUP BY 1"
)
print(
    json.dumps(
        {
            "rows": count,
            "by_tenant": dict(rows("SELECT tenant, count(*) FROM audit GROUP BY 1")),
            "weekly_hits": dict(weekly),
            "min_seq": first,
            "max_seq": last,
        }
    )
)
