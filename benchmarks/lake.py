"""Generated audit rows for benchmarks: stored in a folder, and the same on every run."""

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import write_segment
from analytics.storage.snapshot import Snapshot

TENANTS: Final = 20
DAYS: Final = 90
FIRST_DAY: Final = date(2026, 1, 1)
PACKAGES: Final = 50_000
ACTORS: Final = 3_000
BINDINGS: Final = 500
ROWS_MAX: Final = 100_000_000
RARE_PACKAGE: Final = "rare-package"
RARE_ACTOR: Final = "key_0000000000000000"
RARE_ONE_IN: Final = 20_000
SETS: Final = Path(os.environ.get("BENCHMARKS_DIR") or Path(tempfile.gettempdir()) / "bench")
"""Folder of generated rows and of the engines' loaded data."""
VERSION: Final = 4
"""Version of generated sets: one of an earlier version is generated again."""

_SHARES: Final = [1 / (rank + 1) ** 1.3 for rank in range(TENANTS)]
_JOB_ROWS: Final = 20
"""Rows of one CI job or one request of a proxy."""

# One hash for each row and purpose: realistic skew, and the same rows on every run. A job's rows
# share their actor, subject, token and request, like those of a real one.
_ROWS: Final = f"""
WITH numbered AS (
  SELECT range AS n, range // {_JOB_ROWS} AS job, hash(range, 1) % 1000000 / 1000000.0 AS p,
    (hash(range, 2) >> 2)::BIGINT AS h, (hash(job, 3) >> 2)::BIGINT AS j,
    hash(job, 4) % 1000000 / 1000000.0 AS q
  FROM range($first, $first + $rows)
), picked AS (
  SELECT *, ({PACKAGES} * p ** 6)::INT AS package, j % 3 = 0 AS is_ci,
    ($first_actor + $actors * q ** 3)::INT AS actor,
    ($first_binding + $bindings * q ** 3)::INT AS binding,
    CASE WHEN h % 100 < 90 THEN 0 WHEN h % 100 < 96 THEN 1 ELSE 2 END AS kind
  FROM numbered
), told AS (
  SELECT *, 'repo:acme-' || binding % 37 || '/service-' || binding || ':ref:refs/heads/main' AS sub,
    CASE kind WHEN 0 THEN NULL
      WHEN 1 THEN '"rule_id":"MAL-2026-' || (1000 + package % 4000) || '","source":"osv"'
      ELSE '"published_at":"' || strftime(make_timestamp($midnight - (h % 80) * 3600000000),
        '%Y-%m-%dT%H:00:00Z') || '","min_age_days":7' END AS reason,
    CASE WHEN is_ci THEN (90000000 + binding)::VARCHAR END AS repository_id,
    CASE WHEN is_ci THEN (7000000000 + job)::VARCHAR END AS run_id,
    CASE WHEN is_ci THEN printf('%016x', hash(job, 5)) END AS token_id,
    '"ci":{{"sub":"' || sub || '","repository_id":"' || repository_id
      || '","event_name":"push","run_id":"' || run_id || '","jti":"' || token_id || '"}}' AS ci
  FROM picked
)
SELECT
  n AS seq,
  make_timestamptz($midnight
    + ((n - $first) * 86400000000 + h % 86400000000) // ($rows + 1)) AS created_at,
  created_at + (1000 + h % 40000) * INTERVAL 1 MICROSECOND AS received_at,
  ['install_allowed', 'blocklist_hit', 'cooldown_active'][kind + 1] AS event,
  CASE WHEN n % {RARE_ONE_IN} = 0 THEN '{RARE_PACKAGE}'
    WHEN package % 4 = 0 THEN '@scope-' || package % 900 || '/lib-' || package
    ELSE ['react', 'node', 'fast', 'py', 'go', 'left'][package % 6 + 1] || '-' || package
    END AS package_name,
  (package % 7) || '.' || (h % 9) || '.' || (h % 4) AS version,
  CASE WHEN kind = 0 THEN 'ALLOWED' ELSE 'BLOCKED' END AS decision,
  '{{' || reason || '}}' AS decision_reason,
  'proxy' AS verdict_source,
  NULL AS actor_tenant_id,
  CASE WHEN job % {RARE_ONE_IN} = 7 THEN '{RARE_ACTOR}'
    ELSE 'key_' || printf('%016x', hash(actor, 6)) END AS actor,
  CASE WHEN is_ci THEN 'oidc_github' ELSE 'api_key' END AS actor_source,
  CASE WHEN is_ci THEN sub END AS subject,
  CASE WHEN is_ci THEN 'obind_' || printf('%016x', hash(binding, 7)) END AS oidc_binding_id,
  'req_'
    || printf('%012x', ($midnight + (job * {_JOB_ROWS} - $first) * 86400000000 // $rows) // 1000)
    || printf('%012x', j % 281474976710656) AS request_id,
  '198.51.' || (actor % 100) || '.' || (actor % 250) AS source_ip,
  '{{' || concat_ws(',', reason, ci) || '}}' AS payload,
  CASE WHEN package % 4 > 0 AND package % 6 IN (2, 3) THEN 'pypi' ELSE 'npm' END AS ecosystem,
  repository_id, run_id, token_id,
  NULL AS file_name, NULL AS file_sha256, NULL AS client
FROM told
"""


def rarely_installed(number: int) -> str:
    """A package of the long tail, 1 row in 300,000; its number is not a multiple of 4."""
    package = PACKAGES - number
    return f"{('react', 'node', 'fast', 'py', 'go', 'left')[package % 6]}-{package}"


def rows_asked_for(claim: str | None) -> tuple[Path, int]:
    """The folder of the set and its number of rows, from a benchmark's command line."""
    parser = argparse.ArgumentParser(description=claim)
    parser.add_argument("--rows", type=int, default=2_000_000, help="up to 100,000,000")
    parser.add_argument(
        "--folder",
        type=Path,
        default=SETS,
        help="where generated rows are kept (BENCHMARKS_DIR)",
    )
    given = parser.parse_args()
    if not 1 <= given.rows <= ROWS_MAX:
        parser.error(f"--rows must be from 1 to {ROWS_MAX}")
    return Path(given.folder) / f"rows-{given.rows}-v{VERSION}", given.rows


def largest_tenant(folder: Path, rows: int) -> Snapshot:
    """The largest of TENANTS skewed tenants with `rows` rows in total, one segment per day."""
    segments = all_segments(folder, rows)
    watermark = max(segment.max_seq for segment in segments)
    own = tuple(segment for segment in segments if segment.tenant_id == tenant_id(0))
    return Snapshot(tenant_id(0), watermark, own, ())


def all_segments(folder: Path, rows: int) -> list[Segment]:
    """`rows` rows of TENANTS tenants below `folder/audit`, generated unless they exist."""
    catalog = folder / "catalog.json"
    if not catalog.exists():
        shutil.rmtree(folder / "audit", ignore_errors=True)  # what broke off
        (folder / "audit").mkdir(parents=True)
        segments = list(_generate(folder / "audit", rows))
        catalog.write_bytes(msgspec.json.encode(segments))
    return msgspec.json.decode(catalog.read_bytes(), type=list[Segment])


def _generate(root: Path, rows: int) -> Iterator[Segment]:
    first = 1
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number in range(DAYS):
            for rank, share in enumerate(_SHARES):
                count = max(1, round(rows * share / sum(_SHARES) / DAYS))
                day = FIRST_DAY + timedelta(days=number)
                table = day_rows(connection, first, count, day, rank)
                yield write_segment(root, tenant_id(rank), day, f"seg_{first}", table)
                first += count


def day_rows(
    connection: duckdb.DuckDBPyConnection, first: int, count: int, day: date, rank: int = 0
) -> pa.Table:
    """`count` rows of the tenant of `rank` on `day`, AUDIT_SCHEMA, seq counting up from `first`."""
    before, share = sum(_SHARES[:rank]) / sum(_SHARES), _SHARES[rank] / sum(_SHARES)
    bound = {
        "first": first,
        "rows": count,
        "midnight": int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000,
        "first_actor": round(ACTORS * before),
        "actors": max(1, round(ACTORS * share)),
        "first_binding": round(BINDINGS * before),
        "bindings": max(1, round(BINDINGS * share)),
    }
    made = connection.sql(_ROWS, params=bound).to_arrow_table()
    return made.select(AUDIT_SCHEMA.names).cast(AUDIT_SCHEMA)


def tenant_id(rank: int) -> str:
    """The id of the tenant of this rank; 0 is the largest."""
    return f"org_bench{rank:02}"
