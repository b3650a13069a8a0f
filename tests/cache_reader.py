"""A process that reads all rows of a tenant by way of a small cache, some times over.

Started by tests with one argument, JSON: `data_dir`, `database`, `url`, `endpoint`, `tenant`,
`bytes_max`, `times`. It prints the numbers of rows that it read, as a JSON list.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from analytics.model.filters import Order, Query
from service.audit.lake import Lake
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.store import Store


async def read(order: dict[str, Any]) -> list[int]:
    settings = Settings(
        data_dir=Path(order["data_dir"]),
        database_url=order["database"],
        segments_url=order["url"],
        segments_endpoint=order["endpoint"],
    )
    lake = Lake(settings)
    lake.segments._cache.bytes_max = order["bytes_max"]  # type: ignore[attr-defined]
    store = Store(create_engines(settings.database, settings.database_wait_s), utc_now)
    counts = []
    try:
        held = await store.snapshot(order["tenant"])
        for number in range(order["times"]):
            # Alternately as an export reads, day by day, and all days in one statement of DuckDB.
            query = Query(order=Order.OLDEST_FIRST if number % 2 else Order.NEWEST_FIRST)
            tables = await lake.queries.run(lambda reader: list(reader.stream(held, query)))  # noqa: B023 - at once
            counts.append(sum(table.num_rows for table in tables))
    finally:
        await store.close()
        lake.close()
    return counts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(json.loads(sys.argv[1])))))  # noqa: T201 - its answer
