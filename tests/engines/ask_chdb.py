"""Asks ClickHouse's engine: FORMAT FOLDER, answers in JSON. It reads below its working folder."""

import json
import sys

from chdb import session

format_, folder = sys.argv[1:]
engine = session.Session()
scan = "icebergLocal" if format_ == "iceberg" else "deltaLakeLocal"
AUDIT = f"{scan}('{folder}')"


def rows(query: str) -> list[list]:
    return json.loads(str(engine.query(query, "JSONCompact")))["data"]


((count, first, last),) = rows(f"SELECT count(), min(seq), max(seq) FROM {AUDIT}")
weekly = rows(
    f"SELECT toString(toMonday(created_at, 'UTC')), count() FROM {AUDIT}"
    " WHERE event = 'blocklist_hit' GROUP BY 1"
)
by_tenant = rows(f"SELECT tenant, count() FROM {AUDIT} GROUP BY 1")
print(
    json.dumps(
        {
            "rows": int(count),
            "by_tenant": {tenant: int(number) for tenant, number in by_tenant},
            "weekly_hits": {week: int(number) for week, number in weekly},
            "min_seq": int(first),
            "max_seq": int(last),
        }
    )
)
