"""Claim: a rule is tried on 90 days of 20 million rows of one organisation within 2 seconds.

The largest organisation of the set has a third of its rows. The peer is DuckDB, which counts rows
by minute and actor over the same files and finds the full windows in SQL: the answers are compared.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from analytics.model.instants import midnight
from analytics.storage.segment_metadata import Segment
from benchmarks.lake import DAYS, FIRST_DAY, ROWS_MAX, SETS, VERSION, all_segments
from benchmarks.results import record
from benchmarks.served import SLUG, found
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.audit.alerts.alerts_api import Backtest, BacktestRequest, try_rule
from service.audit.alerts.firings import SILENT_FOR
from service.audit.alerts.rules import AlertRule
from service.audit.services import AuditServices
from service.core.settings import Settings
from service.store.organisations import get_org

AT_LEAST, WINDOW_MINUTES = 6, 10
RULE = AlertRule(
    name="Many blocked installs of one key",
    query="decision=BLOCKED",
    at_least=AT_LEAST,
    window=f"{WINDOW_MINUTES}m",
    per="actor",
)
ALL_ROWS = AlertRule(name="Busy", query="verdict_source=proxy", at_least=10**6, window="1m")
ESTIMATED = {"a backtest, s": 1.2, "by DuckDB alone, s": 1.0, "of every row, s": 0.8}

FULL_WINDOWS = f"""
WITH minutes AS (
  SELECT actor, date_trunc('minute', created_at) AS minute, count(*) AS rows
  FROM read_parquet($files) WHERE decision = 'BLOCKED' GROUP BY ALL
)
SELECT actor, epoch(minute)::BIGINT FROM minutes
QUALIFY sum(rows) OVER (
  PARTITION BY actor ORDER BY minute
  RANGE BETWEEN INTERVAL {WINDOW_MINUTES - 1} MINUTE PRECEDING AND CURRENT ROW
) >= {AT_LEAST} ORDER BY minute, actor
"""


def end() -> datetime:
    """The clock of the backtest: the end of the set's last day."""
    return midnight(FIRST_DAY + timedelta(days=DAYS))


def alone(files: Sequence[str]) -> tuple[float, int]:
    """DuckDB's time, and how often the rule fires if it is silent for an hour."""
    began_at = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        windows = connection.execute(FULL_WINDOWS, {"files": files}).fetchall()
    last: dict[str, int] = {}
    fired = 0
    for actor, minute_s in windows:
        if actor not in last or minute_s - last[actor] >= SILENT_FOR.total_seconds():
            last[actor], fired = minute_s, fired + 1
    return time.perf_counter() - began_at, fired


async def tried(services: Services, rule: AlertRule) -> tuple[float, Backtest]:
    """How long a backtest takes, and what it says."""
    (audit,) = (group for group in services.groups() if type(group) is AuditServices)
    async with services.store.read() as session:
        org = await get_org(session, SLUG)
    began_at = time.perf_counter()
    said = await try_rule(audit, org, BacktestRequest(rule=rule, days=DAYS))
    return time.perf_counter() - began_at, said


async def measure(
    segments: Sequence[Segment], folder: Path, data_dir: Path, rounds: int
) -> dict[str, float]:
    """The figures, and the comparison of answers."""
    await found(segments, folder / "audit", data_dir)
    own = [segment for segment in segments if segment.tenant_id == segments[0].tenant_id]
    files = [str(segment.path(folder / "audit")) for segment in own]
    took: dict[str, list[float]] = {name: [] for name in ESTIMATED}
    for _ in range(rounds):
        # A service of its own: nothing is cached of the round before.
        services = build_services(await prepare(Settings(data_dir=data_dir)), end)
        try:
            of_rule, said = await tried(services, RULE)
            of_all, _ = await tried(services, ALL_ROWS)
        finally:
            await services.close()
        of_peer, fired = alone(files)
        if fired != said.count:
            raise SystemExit(f"DuckDB finds {fired} alerts, the backtest {said.count}")
        for name, seconds in zip(took, (of_rule, of_peer, of_all), strict=True):
            took[name].append(seconds)
    return {
        "rows": sum(segment.rows for segment in own),
        "alerts": fired,
        **{name: statistics.median(seconds) for name, seconds in took.items()},
    }


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX}")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = SETS / f"rows-{given.rows}-v{VERSION}"
    segments = all_segments(folder, given.rows)
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        figures = asyncio.run(measure(segments, folder, Path(data_dir), given.rounds))
    for name, figure in figures.items():
        guess = f"   (estimated {ESTIMATED[name]:g})" if name in ESTIMATED else ""
        print(f"{name:<32}{figure:14,.3f}{guess}")
    record("alerts", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
