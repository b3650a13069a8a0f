"""Asks DuckDB: FORMAT LOCATION, answers in JSON."""

import importlib
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

format_, location = sys.argv[1:]
connection = duckdb.connect(config={"autoinstall_known_extensions": False})
for name in ("httpfs", "avro", "iceberg", "delta"):
    package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    connection.load_extension(str(next(package.rglob("*.duckdb_extension"))))
connection.execute("SET TimeZone = 'UTC'")
if location.startswith("s3://"):
    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    connection.execute(f"""
        CREATE SECRET (
            TYPE s3, REGION '{os.environ["AWS_REGION"]}',
            KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}',
            SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}',
            ENDPOINT '{endpoint.netloc}', USE_SSL {endpoint.scheme == "https"}, URL_STYLE 'path'
        )
    """)
scan = "iceberg_scan" if format_ == "iceberg" else "delta_scan"
connection.execute(f"CREATE VIEW audit AS SELECT * FROM {scan}('{location}')")


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
