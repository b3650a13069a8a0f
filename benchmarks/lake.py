"""Audit rows to measure on: generated once, kept in a folder, the same on every run."""

import argparse
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from analytics.queries import Snapshot
from analytics.schema import AUDIT_SCHEMA
from analytics.segments import Segment, write_segment

TENANTS: Final = 20
DAYS: Final = 90
FIRST_DAY: Final = date(2026, 1, 1)
RARE: Final = "rare-package"
RARE_ONE_IN: Final = 20_000

# One hash for each row and purpose: believable skew, and the same rows on every run.
_ROWS: Final = f"""
WITH numbered AS (
  SELECT range AS n, hash(range, 1) % 1000000 / 1000000.0 AS p, hash(range, 2) AS h
  FROM range($first, $first + $rows)
)
SELECT
  n AS seq,
  make_timestamptz($midnight + (n - $first) * 86400000000 // $rows) AS created_at,
  created_at + INTERVAL 1 MILLISECOND AS received_at,
  CASE WHEN h % 100 < 90 THEN 'install_allowed' WHEN h % 100 < 96 THEN 'blocklist_hit'
    ELSE 'cooldown_active' END AS event,
  CASE WHEN n % {RARE_ONE_IN} = 0 THEN '{RARE}'
    ELSE 'package-' || (3000 * p * p * p)::INT END AS package_name,
  (h % 5) || '.' || (h % 17) || '.0' AS version,
  CASE WHEN h % 100 < 90 THEN 'ALLOWED' ELSE 'BLOCKED' END AS decision,
  '{{"rule_id":"r' || (h % 40) || '"}}' AS decision_reason,
  'proxy' AS verdict_source,
  NULL AS actor_tenant_id,
  'key_' || (60 * p * p)::INT AS actor,
  CASE WHEN h % 3 = 0 THEN 'oidc_github' ELSE 'api_key' END AS actor_source,
  CASE WHEN h % 3 = 0 THEN 'repo:acme/service-' || (h % 300) END AS subject,
  CASE WHEN h % 3 = 0 THEN 'obind_' || (h % 300) END AS oidc_binding_id,
  'req_' || printf('%024x', n) AS request_id,
  '192.0.2.' || (h % 250) AS source_ip,
  '{{"rule_id":"r' || (h % 40) || '"}}' AS payload
FROM numbered
"""


def rows_asked_for(claim: str | None) -> tuple[Path, int]:
    """The folder of the set, and how many rows it has, as the command line of a benchmark says."""
    parser = argparse.ArgumentParser(description=claim)
    parser.add_argument("--rows", type=int, default=2_000_000, help="up to 100,000,000")
    parser.add_argument(
        "--folder",
        type=Path,
        default=os.environ.get("COUNTERSIGN_BENCH_DIR") or Path(tempfile.gettempdir()) / "bench",
        help="where generated rows are kept (COUNTERSIGN_BENCH_DIR)",
    )
    given = parser.parse_args()
    if not 1 <= given.rows <= 100_000_000:
        parser.error("--rows must be from 1 to 100000000")
    return Path(given.folder) / f"rows-{given.rows}", given.rows


def largest_tenant(folder: Path, rows: int) -> Snapshot:
    """The largest of TENANTS skewed tenants with `rows` rows together, one segment a day.

    All tenants are generated below `folder/audit` unless an earlier run has done so.
    """
    catalog = folder / "catalog.json"
    if not catalog.exists():
        (folder / "audit").mkdir(parents=True, exist_ok=True)
        segments = list(_generate(folder / "audit", rows))
        catalog.write_bytes(msgspec.json.encode(segments))
    segments = msgspec.json.decode(catalog.read_bytes(), type=list[Segment])
    tenant_id = _tenant_id(0)
    own = tuple(segment for segment in segments if segment.tenant_id == tenant_id)
    watermark = max(segment.max_seq for segment in segments)
    return Snapshot(tenant_id, watermark, own, ())


def _generate(root: Path, rows: int) -> Iterator[Segment]:
    weights = [1 / (rank + 1) ** 1.3 for rank in range(TENANTS)]
    first = 1
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number in range(DAYS):
            for rank, weight in enumerate(weights):
                count = max(1, round(rows * weight / sum(weights) / DAYS))
                day = FIRST_DAY + timedelta(days=number)
                table = day_rows(connection, first, count, day)
                yield write_segment(root, _tenant_id(rank), day, f"seg_{first}", table)
                first += count


def day_rows(connection: duckdb.DuckDBPyConnection, first: int, count: int, day: date) -> pa.Table:
    """`count` rows of one tenant on `day`, seq counting up from `first`."""
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    bound = {"first": first, "rows": count, "midnight": midnight}
    made = connection.sql(_ROWS, params=bound).to_arrow_table()
    return made.select(AUDIT_SCHEMA.names).cast(AUDIT_SCHEMA)


def _tenant_id(rank: int) -> str:
    return f"org_bench{rank:02}"
