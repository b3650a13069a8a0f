"""Asks ClickHouse's engine: FORMAT LOCATION, answers in JSON.

Of local files it reads those below its working folder.
"""

import json
import os
import sys

from chdb import session

format_, location = sys.argv[1:]
engine = session.Session()
if location.startswith("s3://"):
    location = location.replace("s3:/", os.environ["AWS_ENDPOINT_URL"])
    scan = "icebergS3" if format_ == "iceberg" else "deltaLake"
else:
    scan = "icebergLocal" if format_ == "iceberg" else "deltaLakeLocal"
AUDIT = f"{scan}('{location}')"


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
