"""Claim: 20,000 new advisories are matched with 20 million past installs within 5 s.

The same question is asked of DuckDB over the files of the open table, which gives the same answer.
One advisory in twenty names a package that was installed. And an import of many advisories, with
the match behind it, takes at most twice as long as without.
"""

import argparse
import asyncio
import io
import json
import random
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from analytics.model.filters import parse_query
from analytics.storage.segment_metadata import Segment
from benchmarks.lake import PACKAGES, ROWS_MAX, SETS, VERSION, all_segments, rarely_installed
from benchmarks.results import record
from benchmarks.served import found
from service.access.callers import cli_caller
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.audit.tenant_log import open_log
from service.core.clock import utc_now
from service.core.settings import Settings
from service.packages.policy.blocklist import BlocklistImporter
from service.packages.retro.affected import EVENTS
from service.store.organisations import list_orgs

SEED = 7
INSTALLED_ONE_IN = 20
MATCHES_MAX = 1_000_000
ESTIMATED = {"matched, s": 3.0, "DuckDB, s": 1.5, "import with the match, ratio": 1.2}

Answer = Counter[tuple[str, str]]
"""Installs by organisation and advisory."""


def advisories(count: int) -> Iterator[tuple[str, str, str, list[str]]]:
    """Id, ecosystem, package and versions of each, the same on every run."""
    rng = random.Random(SEED)  # noqa: S311 - which packages they name is no secret
    for number in range(count):
        name, ecosystem = f"evil-{number}", "npm"
        if number % INSTALLED_ONE_IN == 0:
            place = rng.randrange(1, PACKAGES)
            package = PACKAGES - place
            if package % 4:
                name = rarely_installed(place)
                ecosystem = "PyPI" if package % 6 in {2, 3} else "npm"
        versions = [f"{n}.{rng.randrange(9)}.{rng.randrange(4)}" for n in range(7)]
        yield f"MAL-2026-{number}", ecosystem, name, versions


def archive(count: int) -> io.BytesIO:
    """OSV's bulk file of them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for id_, ecosystem, name, versions in advisories(count):
            affected = {"package": {"ecosystem": ecosystem, "name": name}, "versions": versions}
            said = {"id": id_, "modified": "2026-01-01T00:00:00Z", "affected": [affected]}
            opened.writestr(f"{id_}.json", json.dumps(said))
    return file


async def import_s(services: Services, count: int) -> float:
    """How long the import of so many advisories takes, as without the match."""
    content = archive(count)
    began_at = time.perf_counter()
    by = cli_caller("org_platform").audit_context
    await BlocklistImporter(services.store).import_file(content, "osv.zip", ["MAL-*"], by)
    return time.perf_counter() - began_at


async def match_s(services: Services) -> float:
    """How long the job takes that follows it."""
    began_at = time.perf_counter()
    await services.retro.match_due()
    return time.perf_counter() - began_at


async def recorded(services: Services) -> Answer:
    """What the rows of all organisations say."""
    answer: Answer = Counter()
    async with services.store.read() as session:
        orgs = await list_orgs(session)
    for org in orgs:
        log = await open_log(services.store, services.lake, org, services.clock())
        rows = await log.page(parse_query({"event": ["installs_matched"]}), MATCHES_MAX)
        for payload in map(json.loads, rows["payload"].to_pylist()):
            answer[org.id, payload["rule_id"]] += payload["installs"]
    return answer


def by_duckdb(segments: Sequence[Segment], root: Path, count: int) -> tuple[Answer, float]:
    """The same from the files, and how long it took."""
    files = [str(segment.path(root)) for segment in segments]
    tenants = pa.table({"file": files, "tenant": [segment.tenant_id for segment in segments]})
    releases = [
        (id_, ecosystem.lower(), name, version)
        for id_, ecosystem, name, versions in advisories(count)
        for version in versions
    ]
    names = ["rule", "ecosystem", "package_name", "version"]
    wanted = pa.table(dict(zip(names, zip(*releases, strict=True), strict=True)))
    with duckdb.connect(":memory:") as connection:
        connection.register("tenants", tenants)
        connection.register("wanted", wanted)
        began_at = time.perf_counter()
        lines = connection.execute(
            "SELECT tenant, rule, count(*)"
            " FROM read_parquet($files, hive_partitioning = false, filename = true) AS rows"
            " JOIN wanted USING (ecosystem, package_name, version)"
            " JOIN tenants ON rows.filename = tenants.file"
            " WHERE list_contains($events, event) GROUP BY ALL",
            {"files": files, "events": list(EVENTS)},
        ).fetchall()
        took_s = time.perf_counter() - began_at
    return Counter({(tenant, rule): installs for tenant, rule, installs in lines}), took_s


async def measure(
    segments: Sequence[Segment], folder: Path, data_dir: Path, count: int, imported: int
) -> dict[str, float]:
    """The figures; raises if the answers differ."""
    await found(segments, folder / "audit", data_dir)
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    try:
        await match_s(services)  # what is in force is nothing: organisations are known from here on
        await import_s(services, count)
        ours_s = await match_s(services)
        answer, duckdb_s = by_duckdb(segments, folder / "audit", count)
        if answer != await recorded(services):
            raise AssertionError("DuckDB counts other installs")
        alone_s = await import_s(services, imported)
        with_match_s = alone_s + await match_s(services)
    finally:
        await services.close()
    return {
        "rows": sum(segment.rows for segment in segments),
        "advisories": count,
        "matches": len(answer),
        "matched, s": ours_s,
        "DuckDB, s": duckdb_s,
        "advisories imported": imported,
        "import alone, s": alone_s,
        "import with the match, s": with_match_s,
        "import with the match, ratio": with_match_s / alone_s,
    }


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX}")
    parser.add_argument("--advisories", type=int, default=20_000)
    parser.add_argument("--imported", type=int, default=220_000)
    given = parser.parse_args()
    folder = SETS / f"rows-{given.rows}-v{VERSION}"
    segments = all_segments(folder, given.rows)
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        figures = asyncio.run(
            measure(segments, folder, Path(data_dir), given.advisories, given.imported)
        )
    for name, figure in figures.items():
        guess = f"   (estimated {ESTIMATED[name]:g})" if name in ESTIMATED else ""
        print(f"{name:<32}{figure:14,.3f}{guess}")
    record("retro", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
