"""Claim: a rule is tried on 90 days of 20 million rows of one organisation within 2 seconds.

All rows of the set are one organisation's here. The peer is DuckDB, which counts rows by minute and
actor over the same files and finds the full windows in SQL: the answers are compared.

And a round in which nothing is new takes 50 ms at most with ten rules of each of 1,000
organisations.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from analytics.model.alert_envelopes import AlertRuleChanged
from analytics.model.instants import midnight
from analytics.model.retention import Tier
from analytics.storage.segment_metadata import Segment
from benchmarks.lake import DAYS, FIRST_DAY, ROWS_MAX, SETS, VERSION, all_segments
from benchmarks.results import record
from benchmarks.served import SLUG, found
from service.access.callers import service_context
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.audit.alerts.alerts_api import Backtest, BacktestRequest, try_rule
from service.audit.alerts.firings import SILENT_FOR
from service.audit.alerts.rules import AlertRule
from service.audit.services import AuditServices
from service.core.settings import Settings
from service.store.organisations import get_org
from service.store.store import UnitOfWork
from service.store.tables import AlertRuleEntry, Organisation

AT_LEAST, WINDOW_MINUTES = 6, 10
RULE = AlertRule(
    name="Many blocked installs of one key",
    query="decision=BLOCKED",
    at_least=AT_LEAST,
    window=f"{WINDOW_MINUTES}m",
    per="actor",
)
ALL_ROWS = AlertRule(name="Busy", query="verdict_source=proxy", at_least=10**6, window="1m")
BACKTESTS = ("a backtest, s", "by DuckDB alone, s", "of every row, s")
ESTIMATED = {
    **dict(zip(BACKTESTS, (1.2, 1.0, 0.8), strict=True)),
    "the first round, ms": 1000.0,
    "an idle round, ms": 30.0,
    "a round with one new row, ms": 60.0,
}
ORGS, RULES_EACH = 1_000, 10

CHANGE: dict[str, Any] = {"rule_id": "", "rule": "", "change": "created", "definition": None}

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


async def watched(data_dir: Path, orgs: int) -> dict[str, float]:
    """How long rounds take, in ms: each organisation has a row of now, and its rules."""
    settings, now = await prepare(Settings(data_dir=data_dir)), [end()]
    services = build_services(settings, lambda: now[0])
    took = {}

    async def watch(name: str) -> None:
        now[0] += timedelta(minutes=1)
        began_at = time.perf_counter()
        await services.alerts.watch_due()
        took[f"{name}, ms"] = 1000 * (time.perf_counter() - began_at)

    try:
        async with services.store.write() as work:
            for number in range(orgs):
                await add_org(work, f"org-{number}", now[0])
        await watch("the first round")
        await watch("an idle round")
        async with services.store.write() as work:
            work.record("org-0", AlertRuleChanged(**CHANGE), service_context("org-0"))
        await watch("a round with one new row")
    finally:
        await services.close()
    return took


async def add_org(work: UnitOfWork, slug: str, now: datetime) -> None:
    """An organisation with a row and RULES_EACH rules that count rows, one of them silences."""
    work.session.add(
        Organisation(
            id=slug, slug=slug, tier=Tier.ENTERPRISE, role_overrides={}, created_at=work.now
        )
    )
    await work.session.flush()
    for number in range(RULES_EACH):
        rule = msgspec.structs.replace(RULE, kind="count" if number else "silence", window="1h")
        work.session.add(
            AlertRuleEntry(
                id=f"rule-{slug}-{number}",
                tenant_id=slug,
                name=str(number),
                definition=msgspec.json.encode(rule).decode(),
                on_since=now,
                changed_by="",
                changed_at=now,
            )
        )
    work.record(slug, AlertRuleChanged(**CHANGE), service_context(slug))


def of_one(segments: Sequence[Segment], source: Path, target: Path) -> list[Segment]:
    """All `segments` as those of the first one's organisation, linked below `target`."""
    own = [replace(segment, tenant_id=segments[0].tenant_id) for segment in segments]
    for before, now in zip(segments, own, strict=True):
        path = now.path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(before.path(source))
        if before.index_size:
            now.index_path(target).hardlink_to(before.index_path(source))
    return own


async def measure(
    segments: Sequence[Segment], folder: Path, data_dir: Path, rounds: int
) -> dict[str, float]:
    """The figures of backtests, and the comparison of answers."""
    own = of_one(segments, folder / "audit", data_dir / "files")
    await found(own, data_dir / "files", data_dir / "data")
    files = [str(segment.path(data_dir / "files")) for segment in own]
    data_dir /= "data"
    took: dict[str, list[float]] = {name: [] for name in BACKTESTS}
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
    parser.add_argument("--orgs", type=int, default=ORGS)
    given = parser.parse_args()
    folder = SETS / f"rows-{given.rows}-v{VERSION}"
    segments = all_segments(folder, given.rows)
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        figures = asyncio.run(measure(segments, folder, Path(data_dir), given.rounds))
        figures |= asyncio.run(watched(Path(data_dir) / "rounds", given.orgs))
    for name, figure in figures.items():
        guess = f"   (estimated {ESTIMATED[name]:g})" if name in ESTIMATED else ""
        print(f"{name:<32}{figure:14,.3f}{guess}")
    record("alerts", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
